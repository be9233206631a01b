import { createHash } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { startFixtureService } from "@capsem/sdk/testing";

/** Stands in for service.cjs in tests of the CLI: same option, lock and files; commands run on this host. */
const home = process.argv[process.argv.indexOf("--home") + 1] ?? "";
if (process.argv.includes("--check")) check();
const lock = createServer();
lock.once("error", () => process.exit(1));
lock.listen(`\0capsem-fixture-${createHash("sha256").update(home).digest("hex")}`, start);

/** As service.cjs does: it starts nothing, and says what it would say at a start. */
function check(): never {
  const path = join(home, "settings.toml");
  const isBad = existsSync(path) && readFileSync(path, "utf8").includes("running_max = 0");
  if (isBad)
    process.stderr.write(
      'capsem service: Cannot use the settings:\n  settings.toml:2:15: "limits.running_max" takes a whole number from 1 to 256\n',
    );
  process.exit(isBad ? 1 : 0);
}

async function start(): Promise<void> {
  rmSync(join(home, "run", "service.sock"), { force: true });
  const service = await startFixtureService({ home });
  writeFileSync(join(home, "run", "service.pid"), `${process.pid}\n`);
  process.once("SIGTERM", () => {
    service.close().then(() => process.exit(0));
  });
}
