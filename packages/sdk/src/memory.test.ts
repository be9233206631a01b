import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Rig, startWays } from "./testing/ways.ts";

const MIB = 256;
const GROWTH_MIB_MAX = 64;

let rig: Rig;
let program: string;
beforeAll(async () => {
  rig = await startWays();
  program = join(rig.home, "transfer.cjs");
  await build({
    entryPoints: [join(import.meta.dirname, "testing/transfer-main.ts")],
    outfile: program,
    bundle: true,
    platform: "node",
    logLevel: "error",
  });
});
afterAll(() => rig.close());

/** Node's own fetch is not here: it keeps what it sends, which is why the Node entry does not use it. */
test.each(["socket", "gateway"])(
  `${MIB} MiB go in and out over the %s in bounded memory`,
  async (way) => {
    const options = way === "socket" ? { home: rig.home } : { url: rig.url, tokenFile: rig.tokenFile };
    const { stdout } = await promisify(execFile)(process.execPath, [
      program,
      JSON.stringify(options),
      String(MIB),
    ]);
    const { bytes, growthMib } = JSON.parse(stdout) as { bytes: number; growthMib: number };
    expect(bytes).toBe(MIB * 1024 * 1024);
    expect(growthMib).toBeLessThan(GROWTH_MIB_MAX);
  },
  120_000,
);
