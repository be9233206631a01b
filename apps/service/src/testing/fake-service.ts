/** The service process with fake machinery and fake owners: `fake-service.cjs HOME OWNER`. Started by tests alone. */
import { join } from "node:path";
import { nodePowers, startOwner } from "../powers-node.ts";
import { runService } from "../run-service.ts";
import { FakeLedger } from "./fake-ledger.ts";
import { fakeMachinery } from "./fake-machinery.ts";

const [home = "", owner = ""] = process.argv.slice(2);

async function main(): Promise<void> {
  process.exitCode = await runService({
    home,
    cache: undefined,
    machineCorp: join(home, "machine-corp.toml"),
    poolSize: process.env.CAPSEM_POOL_SIZE,
    powers: {
      ...nodePowers(owner),
      confinement: () => ({ isEnforced: false, reason: "a fake" }),
      startLedger: new FakeLedger({}).startLedger,
      startOwner: (_plan, descriptors) =>
        startOwner({ file: process.execPath, args: [owner] }, descriptors, {
          FAKE_OWNER_SCRIPT: join(home, "fake-owner.json"),
        }),
    },
    machinery: (layout) => fakeMachinery(layout.cache),
    say: (line) => process.stderr.write(`${line}\n`),
    stopAsked: new Promise((done) => {
      for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => done(name));
    }),
    onUncaught: (listener) => {
      process.on("uncaughtException", listener);
      if (process.env.FAKE_PANIC !== undefined) setImmediate(() => listener(new Error("scripted panic")));
    },
    exit: process.exit,
  });
  process.exit();
}

void main();
