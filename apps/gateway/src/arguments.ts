import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { Failure, messageOf } from "@capsem/base";

export type Command =
  | {
      /** `start` makes a daemon and ends; `serve` is the gateway itself. */
      readonly kind: "start" | "serve";
      readonly home: string;
      readonly port: number;
      readonly isUnconfined: boolean;
    }
  | { readonly kind: "token"; readonly home: string; readonly action: "ensure" | "rotate" };

export const PORT_DEFAULT = 19_222;

/**
 * `start` or `serve`, both with `[--port N] [--allow-unconfined]`, or `token ensure|rotate`; each with `--home DIR`.
 * `serve` without `--allow-unconfined` is for the gatekeeper to start: it takes all that it has from there.
 */
export function parseCommand(argv: readonly string[], homeDefault: string): Command {
  const { values, positionals } = parse(argv);
  const home = resolve(values.home ?? homeDefault);
  const [verb, action, more] = positionals;
  const isPlain = values.port === undefined && values["allow-unconfined"] === undefined;
  if ((verb === "start" || verb === "serve") && action === undefined) {
    return {
      kind: verb,
      home,
      port: portOf(values.port),
      isUnconfined: values["allow-unconfined"] ?? false,
    };
  }
  if (verb === "token" && (action === "ensure" || action === "rotate") && more === undefined && isPlain) {
    return { kind: "token", home, action };
  }
  throw usage("the command is none of start, serve, token ensure, token rotate");
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        home: { type: "string" },
        port: { type: "string" },
        "allow-unconfined": { type: "boolean" },
      },
    });
  } catch (thrown) {
    throw usage(messageOf(thrown));
  }
}

function portOf(text: string | undefined): number {
  if (text === undefined) return PORT_DEFAULT;
  const port = Number(text);
  if (!/^[0-9]{1,5}$/.test(text) || port > 65_535) throw usage(`port "${text}" is not 0 to 65535`);
  return port;
}

function usage(state: string): Failure {
  return new Failure("usage", `Cannot read the command line: ${state}`);
}
