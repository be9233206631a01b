import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { checkStart } from "./check-start.ts";
import { nodeMachinery } from "./machinery-node.ts";
import { nodePowers } from "./powers-node.ts";
import { runService } from "./run-service.ts";

/** Where a corporation puts its policy on a machine. */
const MACHINE_CORP = "/etc/capsem/corp.toml";

/**
 * `service.cjs --home DIR`: one service of one user and home. It ends by SIGTERM or SIGINT. With `--check` it says only
 * whether its settings and rules would let it start.
 */
async function main(): Promise<void> {
  const { values } = parseArgs({ options: { home: { type: "string" }, check: { type: "boolean" } } });
  const home = resolve(values.home ?? process.env.CAPSEM_HOME ?? join(homedir(), ".capsem"));
  if (values.check === true) {
    const say = (line: string) => process.stderr.write(`${line}\n`);
    process.exitCode = await checkStart({
      home,
      machineCorp: MACHINE_CORP,
      uid: process.getuid?.() ?? -1,
      say,
    });
    return;
  }
  const cache = process.env.CAPSEM_CACHE;
  const programFolder = dirname(resolve(process.argv[1] ?? ""));
  // Our own files name their modes; what the image program makes must be readable by the VMs' users.
  process.umask(0o022);
  process.exitCode = await runService({
    home,
    cache: cache === undefined || cache === "" ? undefined : resolve(cache),
    poolSize: process.env.CAPSEM_POOL_SIZE,
    machineCorp: MACHINE_CORP,
    powers: nodePowers(join(programFolder, "owner.cjs")),
    machinery: (layout) => nodeMachinery(layout, programFolder),
    say: (line) => process.stderr.write(`${line}\n`),
    stopAsked: stopSignal(),
    onUncaught: (listener) => {
      process.on("uncaughtException", listener);
    },
    exit: process.exit,
  });
  // Whatever a stopped VM or client may still hold open ends here.
  process.exit();
}

function stopSignal(): Promise<string> {
  return new Promise((done) => {
    for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => done(name));
    // A daemon outlives the terminal that it was started from.
    process.on("SIGHUP", () => undefined);
  });
}

void main();
