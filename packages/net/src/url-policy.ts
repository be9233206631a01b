import { type AddressKind, addressKind } from "./address.ts";
import { NET_LIMITS } from "./limits.ts";

/** What a URL names, in its one spelling: whoever judged it and whoever dials it read the same. */
export interface UrlParts {
  readonly scheme: "http" | "https";
  /** A name without its last dot, or an address without brackets. */
  readonly host: string;
  readonly isAddress: boolean;
  readonly port: number;
  /** Always with its port: `https://host:443`. */
  readonly origin: string;
  /** With its query; at least "/". */
  readonly path: string;
}

export interface Target extends UrlParts {
  /** One of the grants names it: it may be of this machine or of a private network. */
  readonly isGranted: boolean;
}

export interface UrlRefusal {
  readonly kind: "refused";
  /** "its host is …", for the end of a sentence. */
  readonly reason: string;
  /** The grant that would allow it, `HOST:PORT`; null where none can. */
  readonly grant: string | null;
}
export type UrlJudgement = { readonly kind: "ok"; readonly target: Target } | UrlRefusal;

/**
 * Whether a URL may be dialled at all, before its name is resolved. `grants` are `HOST:PORT`, and count for exactly
 * that one.
 */
export function judgeUrl(url: string, grants: readonly string[] = []): UrlJudgement {
  const read = parseUrl(url);
  if (read.kind === "refused") return read;
  const { parts } = read;
  const { host, port, isAddress } = parts;
  const grant = grantOf(host, port);
  const target: Target = { ...parts, isGranted: grants.some((each) => canonicalGrant(each) === grant) };
  const reason = isAddress ? addressRefusal(host, target) : nameRefusal(host, target.isGranted);
  if (reason === null) return { kind: "ok", target };
  const canBeGranted = !target.isGranted && (!isAddress || !NEVER.has(addressKind(host) ?? "reserved"));
  return { kind: "refused", reason, grant: canBeGranted ? grant : null };
}

/** What a URL says, whoever may dial it. */
export function parseUrl(url: string): { readonly kind: "ok"; readonly parts: UrlParts } | UrlRefusal {
  if (url.length > NET_LIMITS.urlCharactersMax) {
    return refused(`it has ${url.length} characters, limit ${NET_LIMITS.urlCharactersMax}`);
  }
  // The parser drops some of these silently and reads a backslash as a slash.
  if (/[\p{Cc}\s\\]/u.test(url)) return refused("it has a space, a backslash or a control character");
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    return refused("it is no URL");
  }
  const { protocol, pathname, search } = parsed;
  if (protocol !== "http:" && protocol !== "https:") return refused("it is neither http nor https");
  const authority = /^https?:\/\/([^/?#]*)/i.exec(url)?.[1];
  if (authority === undefined) return refused("it has no // before its host");
  if (authority.includes("@")) return refused("it has a user or a password before its host");
  const host = hostOf(parsed.hostname);
  if (host === null) return refused("its host is no name and no address");
  const scheme = protocol === "https:" ? "https" : "http";
  const port = parsed.port === "" ? (scheme === "https" ? 443 : 80) : Number(parsed.port);
  if (port === 0) return refused("its port is 0");
  const parts: UrlParts = {
    ...{ scheme, host, port },
    isAddress: addressKind(host) !== null,
    origin: `${scheme}://${grantOf(host, port)}`,
    path: `${pathname}${search}`,
  };
  return { kind: "ok", parts };
}

/**
 * Why an address may not be dialled for a target, in words; null for one that may. To be asked of every address that
 * its name has: a name that has one wrong address is refused as a whole.
 */
export function addressRefusal(
  address: string,
  { host, isAddress, isGranted }: Pick<Target, "host" | "isAddress" | "isGranted">,
): string | null {
  const kind = addressKind(address);
  if (kind === null) return `${JSON.stringify(address.slice(0, 64))} is no address`;
  if (kind === "public" && !isLocalName(host)) return null;
  const words = isAddress ? `${address} is ${WORDS[kind]}` : `${host} is at ${address}, ${WORDS[kind]}`;
  if (!isGranted || NEVER.has(kind)) return words;
  if (isAddress) return null;
  // A name is granted for what it usually means, not for whatever its DNS may answer one day.
  if (isLocalName(host)) return kind === "loopback" ? null : words;
  return BY_NAME.has(kind) ? null : words;
}

const WORDS: Readonly<Record<AddressKind, string>> = {
  public: "a public address",
  unspecified: "no machine's address",
  loopback: "an address of this machine",
  link_local: "a link-local address",
  metadata: "an address that answers with credentials of the machine",
  private: "an address of a private network",
  shared: "an address of a provider's own network",
  multicast: "an address of many machines",
  reserved: "a reserved address",
};

const NEVER: ReadonlySet<AddressKind> = new Set(["unspecified", "multicast"]);
const BY_NAME: ReadonlySet<AddressKind> = new Set(["loopback", "private", "shared"]);

/** Answered by this machine or the network around it, never by the DNS of the world. */
const LOCAL_DOMAINS: readonly string[] = [
  ...["local", "internal", "localdomain", "intranet", "private", "corp", "home", "lan", "home.arpa"],
  "in-addr.arpa",
  "ip6.arpa",
];

function nameRefusal(host: string, isGranted: boolean): string | null {
  if (isGranted) return null;
  if (isLocalName(host)) return `${host} is this machine`;
  if (!host.includes(".")) return `${host} is a name of the network around this machine`;
  const domain = LOCAL_DOMAINS.find((each) => host === each || host.endsWith(`.${each}`));
  return domain === undefined ? null : `names below .${domain} are of the network around this machine`;
}

function isLocalName(host: string): boolean {
  return host === "localhost" || host.endsWith(".localhost");
}

const NAME = /^(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

/** Of a parsed URL: lower case, punycode and decimals already. An empty label is no way around a rule. */
function hostOf(hostname: string): string | null {
  if (hostname.startsWith("[")) return hostname.slice(1, -1);
  const name = hostname.endsWith(".") ? hostname.slice(0, -1) : hostname;
  if (addressKind(name) !== null) return name === hostname ? name : null;
  return name.length <= NET_LIMITS.hostCharactersMax && NAME.test(name) ? name : null;
}

function grantOf(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** A grant in the spelling of targets; null for none. */
export function canonicalGrant(grant: string): string | null {
  const found = /^(.*):(\d{1,5})$/.exec(grant);
  const [, text = "", port = ""] = found ?? [];
  if (/[/?#@\\\s]/.test(text) || text === "" || Number(port) === 0 || Number(port) > 65_535) return null;
  try {
    const host = hostOf(new URL(`http://${text}/`).hostname);
    return host === null ? null : grantOf(host, Number(port));
  } catch {
    return null;
  }
}

function refused(reason: string): UrlRefusal {
  return { kind: "refused", reason, grant: null };
}
