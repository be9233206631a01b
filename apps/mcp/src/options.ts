import { Failure, isLoopbackHost } from "@capsem/base";
import { TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX } from "./limits.ts";

export interface Settings {
  readonly gatewayUrl: string;
  /** Null: the token is in the environment. */
  readonly tokenFile: string | null;
  readonly timeoutMs: number;
}

export type Options =
  | { readonly kind: "help" }
  | { readonly kind: "version" }
  | { readonly kind: "serve"; readonly settings: Settings };

export const HELP = `Usage: capsem-mcp --gateway-url URL [--token-file PATH] [--timeout-ms N]

An MCP server on stdio for Capsem's VMs. It needs a running gateway (capsem gateway start).

Options:
  --gateway-url URL   The gateway, such as http://127.0.0.1:19222
  --token-file PATH   The file with the gateway's token; without it CAPSEM_GATEWAY_TOKEN
  --timeout-ms N      Longest wait for an answer of the gateway (default ${TIMEOUT_MS_DEFAULT})
  --help, --version

Configure a client with: capsem mcp install claude, codex or gemini
`;

const TAKES_VALUE = ["--gateway-url", "--token-file", "--timeout-ms"] as const;
type Name = (typeof TAKES_VALUE)[number];

/** A fault names the option and never repeats a value: it may be a secret in the wrong place. */
export function parseOptions(argv: readonly string[]): Options {
  const values = new Map<Name, string>();
  const queue = [...argv];
  for (let word = queue.shift(); word !== undefined; word = queue.shift()) {
    const equals = word.startsWith("--") ? word.indexOf("=") : -1;
    const name = equals < 0 ? word : word.slice(0, equals);
    if (name === "--token")
      throw usage(
        "Cannot use --token: others can read a command line; use --token-file or CAPSEM_GATEWAY_TOKEN",
      );
    if (name === "--help" || name === "-h") return { kind: "help" };
    if (name === "--version") return { kind: "version" };
    const option = TAKES_VALUE.find((each) => each === name);
    if (option === undefined) throw usage(`Cannot use ${shown(name)}: see capsem-mcp --help`);
    if (values.has(option)) throw usage(`Cannot use ${option} twice`);
    const value = equals < 0 ? queue.shift() : word.slice(equals + 1);
    if (value === undefined || value === "" || (equals < 0 && value.startsWith("--")))
      throw usage(`Cannot use ${option}: its value is missing`);
    values.set(option, value);
  }
  return { kind: "serve", settings: settingsOf(values) };
}

function settingsOf(values: ReadonlyMap<Name, string>): Settings {
  const gatewayUrl = values.get("--gateway-url");
  if (gatewayUrl === undefined) throw usage("Cannot start: --gateway-url is missing");
  checkUrl(gatewayUrl);
  return {
    gatewayUrl,
    tokenFile: values.get("--token-file") ?? null,
    timeoutMs: timeoutOf(values.get("--timeout-ms")),
  };
}

function timeoutOf(text: string | undefined): number {
  if (text === undefined) return TIMEOUT_MS_DEFAULT;
  const value = /^[0-9]{1,9}$/.test(text) ? Number(text) : 0;
  if (value < 1 || value > TIMEOUT_MS_MAX)
    throw usage(`Cannot use --timeout-ms: a whole number from 1 to ${TIMEOUT_MS_MAX} is needed`);
  return value;
}

/** The token goes to this address with every call: in the clear only where it does not leave the machine. */
function checkUrl(text: string): void {
  const refuse = (why: string) => usage(`Cannot use --gateway-url: ${why}`);
  if (!URL.canParse(text)) throw refuse("it is no URL");
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:") throw refuse("it is not http or https");
  if (url.username !== "" || url.password !== "") throw refuse("it has a user or password");
  if (url.search !== "" || url.hash !== "") throw refuse("it has a query or fragment");
  if (url.protocol === "http:" && !isLoopbackHost(url.hostname))
    throw refuse("http is for this machine alone, use https");
}

/** A word that has the look of an option is repeated; any other may be a value. */
function shown(name: string): string {
  return /^--[a-z][a-z-]{0,31}$/.test(name) ? name : "an unknown word";
}

function usage(message: string): Failure<"usage"> {
  return new Failure("usage", message);
}
