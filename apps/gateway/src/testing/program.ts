import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { buildSync } from "esbuild";
import { afterAll, afterEach } from "vitest";
import { buildNative } from "../../../../packages/native/build.mjs";

const root = resolve(__dirname, "../../../..");

export interface Run {
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  readonly out: () => string;
  readonly errors: () => string;
}

/** The gateway's program, built anew, and what it is run in. Everything ends with the test that began it. */
export async function useProgram() {
  await buildNative(root, join(root, "dist"));
  const programFolder = mkdtempSync(join(tmpdir(), "capsem-gateway-program-"));
  const program = join(programFolder, "gateway.cjs");
  buildSync({
    entryPoints: [join(__dirname, "../main.ts")],
    outfile: program,
    bundle: true,
    platform: "node",
    format: "cjs",
    target: "node20",
    logLevel: "error",
    // The bundle lies elsewhere than the addon and the gatekeeper.
    define: { __dirname: JSON.stringify(join(root, "dist")) },
  });
  afterAll(() => rmSync(programFolder, { recursive: true, force: true }));
  const children: Run[] = [];
  const folders: string[] = [];
  afterEach(async () => {
    for (const { child, exited } of children.splice(0)) {
      child.kill("SIGKILL");
      await exited;
    }
    for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
  });
  return {
    program,
    newHome(name = "home"): string {
      const folder = mkdtempSync(join(tmpdir(), "capsem-gateway-process-"));
      folders.push(folder);
      return join(folder, name);
    },
    run(...argv: string[]): Run {
      const child = spawn(process.execPath, [program, ...argv], { stdio: ["ignore", "pipe", "pipe"] });
      const texts = { out: "", errors: "" };
      child.stdout?.on("data", (part) => {
        texts.out += String(part);
      });
      child.stderr?.on("data", (part) => {
        texts.errors += String(part);
      });
      const exited = new Promise<number | null>((done) => child.once("close", done));
      const started = { child, exited, out: () => texts.out, errors: () => texts.errors };
      children.push(started);
      return started;
    },
  };
}
