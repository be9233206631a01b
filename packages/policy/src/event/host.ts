import { POLICY_LIMITS } from "../limits.ts";

/** Hosts and addresses in their one spelling: a rule must not be passed by writing a host another way. */

/** The URL parser would drop some of these silently, and read others as something else than a host. */
const FORBIDDEN_IN_HOST = /[\p{Cc}\s/\\?#@<>^|"`{}]/u;

/** Most hosts are written as they are: ASCII labels, the last of which no parser takes for a number. */
const PLAIN_NAME = /^(?:[a-z0-9_-]+\.)*[a-z][a-z0-9-]*$/;

/**
 * The one spelling of a host: lower case, without the last dot, punycode, IPv4 in four decimals whatever it was
 * written in, IPv6 compressed and without brackets, an IPv4-mapped one as IPv4. Null for what is no host.
 */
export function canonicalHost(text: string): string | null {
  if (text.length <= POLICY_LIMITS.hostCharsMax && PLAIN_NAME.test(text) && !text.includes("xn--"))
    return text;
  if (text === "" || text.length > POLICY_LIMITS.hostTextCharsMax || FORBIDDEN_IN_HOST.test(text))
    return null;
  const bare = text.startsWith("[") && text.endsWith("]") ? text.slice(1, -1) : text;
  const name = bare.replace(/\.+$/, "");
  if (name === "") return bare === "." ? "." : null;
  if (name.includes(":")) return hostOf(`[${name}]`);
  // Names of the DNS may hold what no URL may; they stay as they are, so that a rule can still name them.
  return hostOf(name) ?? (/^[!-~]+$/.test(name) && !/[[\]%:]/.test(name) ? name.toLowerCase() : null);
}

function hostOf(text: string): string | null {
  let hostname: string;
  try {
    hostname = new URL(`http://${text}/`).hostname;
  } catch {
    return null;
  }
  const bare = hostname.startsWith("[") ? hostname.slice(1, -1) : hostname.replace(/\.+$/, "");
  if (bare === "" || bare.length > POLICY_LIMITS.hostCharsMax) return null;
  return plainIpv4(bare) ?? bare;
}

/** `::ffff:a.b.c.d` reaches the IPv4 host, so it is the IPv4 host. */
function plainIpv4(bare: string): string | null {
  const groups = bare.startsWith("::ffff:") ? bare.slice(7).split(":") : [];
  if (groups.length !== 2) return null;
  const [high, low] = groups.map((group) => Number.parseInt(group, 16));
  if (high === undefined || low === undefined) return null;
  return `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`;
}

/** The one spelling of an IP address; null for a name. */
export function canonicalIp(text: string): string | null {
  const host = canonicalHost(text);
  return host !== null && parseIp(host) !== null ? host : null;
}

/** An address as bits of its family. Takes the one spelling only. */
export interface Ip {
  readonly bits: 32 | 128;
  readonly value: bigint;
}

export function parseIp(host: string): Ip | null {
  const v4 = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(host);
  if (v4 !== null) {
    const parts = v4.slice(1).map(Number);
    if (parts.some((part) => part > 255)) return null;
    return { bits: 32, value: parts.reduce((sum, part) => sum * 256n + BigInt(part), 0n) };
  }
  if (!host.includes(":")) return null;
  const [head = "", tail, ...more] = host.split("::");
  if (more.length > 0) return null;
  const groupsOf = (text: string) => (text === "" ? [] : text.split(":"));
  const left = groupsOf(head);
  const right = tail === undefined ? [] : groupsOf(tail);
  const gap = 8 - left.length - right.length;
  if (tail === undefined ? gap !== 0 : gap < 1) return null;
  const groups = [...left, ...Array<string>(gap).fill("0"), ...right];
  if (!groups.every((group) => /^[0-9a-f]{1,4}$/.test(group))) return null;
  return { bits: 128, value: groups.reduce((sum, group) => sum * 65_536n + BigInt(`0x${group}`), 0n) };
}

/** A network, such as `10.0.0.0/8`. */
export interface Network {
  readonly bits: 32 | 128;
  readonly shift: bigint;
  readonly prefix: bigint;
}

/** Null unless the text is an address, a slash and a length, with no bit set after the length. */
export function parseNetwork(text: string): Network | null {
  const found = /^([0-9a-fA-F:.]+)\/(\d{1,3})$/.exec(text);
  const address = found?.[1] === undefined ? null : canonicalIp(found[1]);
  const ip = address === null ? null : parseIp(address);
  const length = Number(found?.[2]);
  if (ip === null || length > ip.bits) return null;
  const shift = BigInt(ip.bits - length);
  const prefix = ip.value >> shift;
  return prefix << shift === ip.value ? { bits: ip.bits, shift, prefix } : null;
}

export function isInNetwork(ip: Ip, network: Network): boolean {
  return ip.bits === network.bits && ip.value >> network.shift === network.prefix;
}

/** `host` is `domain` or lies below it; both in their one spelling. An address lies below nothing. */
export function isInDomain(host: string, domain: string): boolean {
  return host === domain || (host.endsWith(`.${domain}`) && parseIp(host) === null);
}
