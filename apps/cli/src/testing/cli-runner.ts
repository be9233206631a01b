import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

export interface Ran {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly input?: string | Uint8Array;
  readonly env?: Record<string, string>;
  readonly cwd?: string;
}

/** The bundled CLI beside a stand-in for the service, with a home of its own. */
export interface CliRunner {
  readonly home: string;
  readonly folder: string;
  start(args: readonly string[], options?: RunOptions): ChildProcess;
  run(args: readonly string[], options?: RunOptions): Promise<Ran>;
  close(): Promise<void>;
}

/** A loaded machine makes short work long enough to be told of. */
const PROGRESS = /^capsem: (copying|starting the service|stopping the service|making|finding out).*\n/gm;
const source = dirname(dirname(fileURLToPath(import.meta.url)));

export async function createCliRunner(): Promise<CliRunner> {
  const folder = mkdtempSync(join(tmpdir(), "cli-"));
  await build({
    entryPoints: {
      cli: join(source, "main.ts"),
      service: join(source, "testing/fixture-main.ts"),
      gateway: join(source, "../../gateway/src/main.ts"),
    },
    outdir: folder,
    outExtension: { ".js": ".cjs" },
    bundle: true,
    platform: "node",
    target: "node20",
    format: "cjs",
    logLevel: "error",
  });
  const home = join(folder, "home");
  const start: CliRunner["start"] = (args, { env, cwd } = {}) =>
    spawn(process.execPath, [join(folder, "cli.cjs"), ...args], {
      env: { PATH: process.env.PATH ?? "", CAPSEM_HOME: home, ...env },
      cwd: cwd ?? folder,
      stdio: ["pipe", "pipe", "pipe"],
    });
  const run: CliRunner["run"] = (args, options = {}) => {
    const child = start(args, options);
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(options.input ?? "");
    return endOf(child);
  };
  const close = async () => {
    await run(["gateway", "stop", "--force"]);
    await run(["service", "stop", "--force"]);
    rmSync(folder, { recursive: true, force: true });
  };
  return { home, folder, start, run, close };
}

export function endOf(child: ChildProcess): Promise<Ran> {
  const parts = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  child.stdout?.on("data", (part: Buffer) => parts.stdout.push(part));
  child.stderr?.on("data", (part: Buffer) => parts.stderr.push(part));
  return new Promise((resolve) => {
    child.once("close", (code, signal) => {
      const stdout = Buffer.concat(parts.stdout).toString("latin1");
      const stderr = Buffer.concat(parts.stderr).toString("utf8").replace(PROGRESS, "");
      resolve({ code, signal, stdout, stderr });
    });
  });
}

/** Resolves when the child printed this text. */
export function said(child: ChildProcess, stream: "stdout" | "stderr", text: string): Promise<void> {
  let all = "";
  return new Promise((resolve) => {
    child[stream]?.on("data", (part: Buffer) => {
      all += part.toString("utf8");
      if (all.includes(text)) resolve();
    });
  });
}
