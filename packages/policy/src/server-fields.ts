import type { FaultCode, PolicyFault, Position } from "./fault.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { suggestion } from "./nearest.ts";
import type { GivenField } from "./rule-fields.ts";
import {
  RESERVED_SERVERS,
  SERVER_PROTOCOLS,
  SERVER_TRANSPORTS,
  type ServerDeclaration,
  serverKey,
  USUAL_SERVER,
} from "./server-declaration.ts";

export const SERVER_KEYS = [
  "url",
  "transport",
  "protocol",
  "enabled",
  "grants",
  "headers",
  "timeout_secs",
] as const;
export type ServerKey = (typeof SERVER_KEYS)[number];

/** Keys of other products' files, with what is written here, or why there is no such thing. */
const LEGACY_KEYS: ReadonlyMap<string, string> = new Map([
  ["command", 'a server is reached by "url"; programs on the host are not started'],
  ["args", 'a server is reached by "url"; programs on the host are not started'],
  ["env", 'a server is reached by "url"; programs on the host are not started'],
  ["type", 'is written "transport" here'],
  ["endpoint", 'is written "url" here'],
  ["disabled", 'is written "enabled" here'],
  ["timeout", 'is written "timeout_secs" here'],
  ["http_headers", 'is written "headers" here'],
  ["bearer_token", 'is written as headers = { Authorization = "Bearer credential:blake3:…" } here'],
]);

const NAME = new RegExp(
  `^(?!.*__)[a-z0-9](?:[a-z0-9_-]{0,${POLICY_LIMITS.serverNameCharsMax - 2}}[a-z0-9])?$`,
);
const GRANT = /^(\[[0-9a-f:.]+\]|[a-z0-9.-]+):([0-9]{1,5})$/i;
const HEADER_NAME = new RegExp(`^[A-Za-z0-9-]{1,${POLICY_LIMITS.headerNameCharsMax}}$`);
/** What any HTTP library sends as it is. */
const HEADER_VALUE = new RegExp(`^[\\x20-\\x7e]{0,${POLICY_LIMITS.headerValueCharsMax}}$`);
/** An @ in the authority: of a user without a name too. */
const EMPTY_USER = /^https?:\/\/[^\\/?#]*@/i;
const REFERENCE = /credential:blake3:/g;

/** Headers that the protocol and the connection decide: another value would split a request from the one after it. */
const OURS: ReadonlySet<string> = new Set([
  "accept",
  "connection",
  "content-length",
  "content-type",
  "expect",
  "host",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** The fields of one server as they were given; headers apart, because each is a field of its own. */
export interface GivenServer {
  readonly at: Position | undefined;
  readonly fields: Map<string, GivenField>;
  readonly headers: Map<string, GivenField>;
}

export function givenServer(at: Position | undefined): GivenServer {
  return { at, fields: new Map(), headers: new Map() };
}

/** Why nothing can be called so; undefined where it can. */
export function nameFault(name: string): string | undefined {
  const shown = name.slice(0, POLICY_LIMITS.nameCharsMax);
  if (RESERVED_SERVERS.includes(name)) return `Cannot name server "${shown}": the name is ours`;
  if (NAME.test(name)) return undefined;
  return `Cannot name server "${shown}": a name is a-z, 0-9, - and single _, at most ${POLICY_LIMITS.serverNameCharsMax}`;
}

/** Checks the fields of one server. Every fault of it is reported; with one there is no server. */
export function checkServer(name: string, given: GivenServer): ServerDeclaration | readonly PolicyFault[] {
  return new ServerCheck(name, given).run();
}

class ServerCheck {
  readonly #faults: PolicyFault[] = [];
  readonly #name: string;
  readonly #given: GivenServer;

  constructor(name: string, given: GivenServer) {
    this.#name = name;
    this.#given = given;
  }

  run(): ServerDeclaration | readonly PolicyFault[] {
    this.#names();
    const url = this.#url();
    const transport = this.#choice("transport", SERVER_TRANSPORTS, USUAL_SERVER.transport);
    const protocol = this.#choice("protocol", SERVER_PROTOCOLS, USUAL_SERVER.protocol);
    const isEnabled = this.#flag();
    const grants = this.#grants();
    const headers = this.#headers();
    const timeoutSecs = this.#timeout();
    if (this.#faults.length > 0 || url === undefined) return this.#faults;
    const fields = { url, transport, protocol, isEnabled, grants, headers, timeoutSecs };
    return Object.freeze({ name: this.#name, ...fields, at: this.#given.at });
  }

  #fault(code: FaultCode, message: string, at: Position | undefined = this.#given.at): void {
    const subject = serverKey(this.#name.slice(0, POLICY_LIMITS.nameCharsMax));
    this.#faults.push({ code, message, at, subject });
  }

  #bad(key: ServerKey, takes: string): void {
    this.#fault("bad_value", `"${key}" takes ${takes}`, this.#given.fields.get(key)?.valueAt);
  }

  #names(): void {
    const fault = nameFault(this.#name);
    if (fault !== undefined) this.#fault("bad_name", fault);
    for (const [key, { keyAt }] of this.#given.fields) {
      if ((SERVER_KEYS as readonly string[]).includes(key)) continue;
      const now = LEGACY_KEYS.get(key);
      if (now !== undefined) this.#fault("legacy_key", `"${key}": ${now}`, keyAt);
      else {
        const near = suggestion(key, SERVER_KEYS);
        this.#fault("unknown_key", `a server has no key "${key.slice(0, 64)}"${near}`, keyAt);
      }
    }
  }

  #url(): string | undefined {
    const field = this.#given.fields.get("url");
    if (field === undefined) {
      this.#fault("missing_key", 'a server needs "url"');
      return undefined;
    }
    const why = typeof field.value === "string" ? urlFault(field.value) : "a text";
    if (why === undefined) return field.value as string;
    this.#bad("url", why);
    return undefined;
  }

  #choice<T extends string>(key: ServerKey, of: readonly T[], usual: T): T {
    const field = this.#given.fields.get(key);
    if (field === undefined) return usual;
    const value = of.find((word) => word === field.value);
    if (value === undefined) this.#bad(key, `one of ${of.join(", ")}`);
    return value ?? usual;
  }

  #flag(): boolean {
    const field = this.#given.fields.get("enabled");
    if (field === undefined) return USUAL_SERVER.isEnabled;
    if (typeof field.value !== "boolean") this.#bad("enabled", "true or false");
    return field.value === true;
  }

  #grants(): readonly string[] {
    const value = this.#given.fields.get("grants")?.value ?? [];
    const isList = Array.isArray(value) && value.length <= POLICY_LIMITS.grantsMax;
    if (isList && value.every(isGrant)) return Object.freeze([...value]);
    this.#bad("grants", `a list of at most ${POLICY_LIMITS.grantsMax} texts HOST:PORT`);
    return [];
  }

  #headers(): ReadonlyMap<string, string> {
    const { fields, headers } = this.#given;
    const given = fields.get("headers");
    if (given !== undefined) this.#bad("headers", 'a table, such as { Authorization = "Bearer …" }');
    if (headers.size > POLICY_LIMITS.serverHeadersMax) {
      this.#fault("too_large", `${headers.size} headers, limit ${POLICY_LIMITS.serverHeadersMax}`);
      return USUAL_SERVER.headers;
    }
    const taken = new Map<string, string>();
    const seen = new Set<string>();
    for (const [name, field] of headers) {
      const why = headerFault(name, field.value, seen);
      seen.add(name.toLowerCase());
      if (why !== undefined) this.#fault("bad_value", `header "${name.slice(0, 64)}" ${why}`, field.keyAt);
      else if (typeof field.value === "string") taken.set(name, field.value);
    }
    return taken;
  }

  #timeout(): number {
    const field = this.#given.fields.get("timeout_secs");
    if (field === undefined) return USUAL_SERVER.timeoutSecs;
    const most = POLICY_LIMITS.serverTimeoutSecsMax;
    const { value } = field;
    if (typeof value === "bigint" && value >= 1n && value <= BigInt(most)) return Number(value);
    this.#bad("timeout_secs", `a whole number from 1 to ${most}`);
    return USUAL_SERVER.timeoutSecs;
  }
}

/** What the URL takes instead; undefined where it is one. Which addresses are open is not asked here. */
function urlFault(text: string): string | undefined {
  const most = POLICY_LIMITS.serverUrlCharsMax;
  // The parser drops these silently, and what a person reads would not be what is dialled.
  if (text.length > most || /[^!-~]/.test(text)) return `a URL of at most ${most} characters, without spaces`;
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return "a URL, such as https://example.com/mcp";
  }
  if (!/^https?:\/\//i.test(text)) return "a URL that begins with http:// or https://";
  const hasUser = url.username !== "" || url.password !== "" || EMPTY_USER.test(text);
  if (hasUser) return 'no name and password; put them into "headers"';
  return text.includes("#") ? "no fragment (#…)" : undefined;
}

function isGrant(value: unknown): value is string {
  const port = typeof value === "string" ? GRANT.exec(value)?.[2] : undefined;
  return port !== undefined && Number(port) >= 1 && Number(port) <= 65_535;
}

function headerFault(name: string, value: unknown, seen: ReadonlySet<string>): string | undefined {
  const lower = name.toLowerCase();
  if (!HEADER_NAME.test(name)) return "is no name of a header: it takes letters, digits and -";
  if (OURS.has(lower) || lower.startsWith("mcp-")) return "is not for a declaration: the connection sets it";
  if (seen.has(lower)) return "is there twice";
  if (typeof value !== "string" || !HEADER_VALUE.test(value)) {
    return `takes one line of at most ${POLICY_LIMITS.headerValueCharsMax} printable ASCII characters`;
  }
  return (value.match(REFERENCE)?.length ?? 0) > 1
    ? "holds more than one reference to a credential"
    : undefined;
}
