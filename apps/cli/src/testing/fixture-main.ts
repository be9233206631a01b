import { createHash } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { startFixtureService } from "@capsem/sdk/testing";

/** Stands in for service.cjs in tests of the CLI: same option, lock and files; commands run on this host. */
const home = process.argv[process.argv.indexOf("--home") + 1] ?? "";
const lock = createServer();
lock.once("error", () => process.exit(1));
lock.listen(`\0capsem-fixture-${createHash("sha256").update(home).digest("hex")}`, start);

async function start(): Promise<void> {
  rmSync(join(home, "run", "service.sock"), { force: true });
  const service = await startFixtureService({ home });
  writeFileSync(join(home, "run", "service.pid"), `${process.pid}\n`);
  process.once("SIGTERM", () => {
    service.close().then(() => process.exit(0));
  });
}
