import { writeSync } from "node:fs";
import { join, resolve } from "node:path";
import { openHome } from "./home-folders.ts";
import { grantedPowers } from "./powers-granted.ts";
import { nodePowers } from "./powers-node.ts";
import { EXIT_CODES, runGateway, type Signals } from "./run-gateway.ts";
import { startProcess } from "./start-process.ts";

/** `gateway.cjs start`, `serve` or `token`: see arguments.ts. It ends by SIGTERM or SIGINT. */
async function main(): Promise<void> {
  process.umask(0o077);
  process.exitCode = await runGateway({
    argv: process.argv.slice(2),
    homeDefault: homeDefault(),
    powers({ home, port, isUnconfined }) {
      if (!isUnconfined) return grantedPowers();
      return nodePowers(openHome(home), port);
    },
    start: (command) => startProcess({ ...command, program: resolve(process.argv[1] ?? "") }),
    say: (line) => write(2, line),
    tell: (line) => write(1, line),
    signals: processSignals(),
  });
  // Whatever a client may still hold open ends here.
  process.exit();
}

/** The launcher clears the environment, and the gateway behind it knows no home and may not look for one. */
function homeDefault(): string {
  const { CAPSEM_HOME, HOME } = process.env;
  return CAPSEM_HOME ?? join(HOME ?? "/", ".capsem");
}

/** A daemon outlives the pipe that its starter listened on. */
function write(fd: number, line: string): void {
  try {
    writeSync(fd, `${line}\n`);
  } catch {
    return;
  }
}

function processSignals(): Signals {
  // From the first moment: without a listener the signal would end us.
  process.on("SIGHUP", () => undefined);
  return {
    stopAsked: new Promise((done) => {
      for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => done(name));
    }),
    onReload: (listener) => {
      process.on("SIGHUP", listener);
    },
    onUncaught: (listener) => {
      process.on("uncaughtException", (thrown) => {
        listener(thrown);
        process.exit(EXIT_CODES.panic);
      });
    },
  };
}

void main();
