import { Failure, messageOf } from "@capsem/base";
import { type Command, parseCommand } from "./arguments.ts";
import { startGateway } from "./gateway.ts";
import { openLogSink } from "./gateway-log.ts";
import { openHome, runFolder } from "./home-folders.ts";
import type { Powers } from "./powers.ts";
import type { Started } from "./start-process.ts";
import { ensureToken, rotateToken } from "./token-file.ts";

export const EXIT_CODES = {
  stopped: 0,
  failed: 1,
  usage: 2,
  portTaken: 3,
  alreadyRunning: 4,
  panic: 70,
} as const;

type DaemonCommand = Extract<Command, { isUnconfined: boolean }>;

export interface RunOptions {
  readonly argv: readonly string[];
  readonly homeDefault: string;
  readonly powers: (command: DaemonCommand) => Powers;
  readonly start: (command: DaemonCommand) => Promise<Started>;
  /** One line for the person who started us. */
  readonly say: (line: string) => void;
  /** One line for the program that started us. */
  readonly tell: (line: string) => void;
  readonly signals: Signals;
}

export interface Signals {
  /** Resolves when the process is asked to stop. */
  readonly stopAsked: Promise<string>;
  onReload(listener: () => void): void;
  onUncaught(listener: (thrown: unknown) => void): void;
}

/** The whole life of the process. Resolves with its exit code. */
export async function runGateway(options: RunOptions): Promise<number> {
  try {
    const command = parseCommand(options.argv, options.homeDefault);
    if (command.kind === "serve") return await serve(options, command);
    const home = openHome(command.home);
    const run = runFolder(home);
    switch (command.kind) {
      case "start":
        ensureToken(run);
        options.tell(JSON.stringify(await options.start({ ...command, home })));
        break;
      case "token":
        options.tell(JSON.stringify({ token: changeToken(run, command.action) }));
    }
    return EXIT_CODES.stopped;
  } catch (thrown) {
    options.say(`capsem gateway: ${sentenceOf(thrown)}`);
    return exitCodeOf(thrown);
  }
}

function changeToken(run: string, action: "ensure" | "rotate"): "created" | "kept" | "replaced" {
  if (action === "ensure") return ensureToken(run);
  rotateToken(run);
  return "replaced";
}

async function serve({ signals, tell, powers: make }: RunOptions, command: DaemonCommand): Promise<number> {
  const powers = make(command);
  const sink = await openLogSink(powers);
  const { log } = sink;
  signals.onUncaught((thrown) => {
    log("error", "panic", { detail: thrown instanceof Error ? thrown.stack : String(thrown) });
  });
  try {
    const gateway = await startGateway(powers, log);
    signals.onReload(() => {
      gateway
        .reloadToken()
        .then(() => sink.reopen())
        .catch((thrown: unknown) => log("error", "reload failed", { cause: messageOf(thrown) }));
    });
    // The gatekeeper has said it; our output is the log there.
    if (command.isUnconfined) tell(JSON.stringify({ ready: true, port: gateway.port, pid: process.pid }));
    log("info", "asked to stop", { signal: await signals.stopAsked });
    await gateway.close();
    return EXIT_CODES.stopped;
  } catch (thrown) {
    log("error", "not started", { cause: sentenceOf(thrown) });
    if (command.isUnconfined) throw thrown;
    return exitCodeOf(thrown);
  } finally {
    sink.close();
  }
}

function exitCodeOf(thrown: unknown): number {
  if (codeOf(thrown) === "EADDRINUSE") return EXIT_CODES.portTaken;
  switch (thrown instanceof Failure ? thrown.kind : "") {
    case "usage":
      return EXIT_CODES.usage;
    case "port_taken":
      return EXIT_CODES.portTaken;
    case "already_running":
      return EXIT_CODES.alreadyRunning;
    default:
      return EXIT_CODES.failed;
  }
}

function sentenceOf(thrown: unknown): string {
  if (codeOf(thrown) === "EADDRINUSE") return "Cannot listen: the port is taken";
  return messageOf(thrown);
}

function codeOf(thrown: unknown): unknown {
  return thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
}
