import { Failure } from "@capsem/base";
import type { Calls } from "./attempt.ts";
import { STATE_KEY_BYTES } from "./limits.ts";
import { serveStdio } from "./mcp-sdk.ts";
import { HELP, parseOptions } from "./options.ts";
import type { Powers } from "./powers.ts";
import { nodePowers } from "./powers-node.ts";
import { createServer } from "./server.ts";
import { StdioLines } from "./stdio-lines.ts";
import { checkToken, type TokenSource } from "./token.ts";
import { VERSION } from "./version.ts";

const EXIT = { ok: 0, usage: 2, bug: 70 } as const;

function main(powers: Powers): void {
  try {
    const options = parseOptions(powers.argv);
    if (options.kind === "serve") {
      const token = checkToken(options.settings, powers);
      serve(powers, callsWhenNeeded(options.settings.gatewayUrl, token), options.settings.timeoutMs);
      return;
    }
    powers.print(options.kind === "help" ? HELP : `${VERSION}\n`);
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    powers.say(thrown.message);
    powers.exit(EXIT.usage);
  }
}

/** Until the end of stdin, SIGINT, SIGTERM or a reader that has gone. */
function serve(powers: Powers, calls: Calls, timeoutMs: number): void {
  const transport = new StdioLines(powers.stdin, powers.takeStdout());
  const { every } = powers;
  // Made when a person is first asked; the random numbers take longer to load than a start has.
  let key: Uint8Array | null = null;
  const stateKey = () => {
    key ??= powers.random(STATE_KEY_BYTES);
    return key;
  };
  serveStdio(() => createServer(calls, { version: VERSION, timeoutMs, every, stateKey }), { transport });
  // Connections of calls under way end with the process: the service kills their commands.
  transport.ended.then(() => powers.exit(EXIT.ok));
  powers.onEndSignal(() => powers.exit(EXIT.ok));
}

/** The SDK's client is made by the first call. */
function callsWhenNeeded(url: string, token: TokenSource): Calls {
  let made: Promise<Calls> | null = null;
  return {
    operation: (name, clientName) => async (input, options) => {
      made ??= import("./calls.ts").then(({ gatewayCalls }) => gatewayCalls(url, token));
      return (await made).operation(name, clientName)(input, options);
    },
  };
}

const powers = nodePowers();
process.on("uncaughtException", (thrown) => {
  // Its message may hold what a call was given.
  powers.say(`Cannot go on: internal error (${thrown instanceof Error ? thrown.name : typeof thrown})`);
  powers.exit(EXIT.bug);
});
main(powers);
