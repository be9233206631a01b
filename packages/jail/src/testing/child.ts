import { type StdioOptions, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { builtPath, type Launch, launchWords } from "@capsem/native";
import { buildSync } from "esbuild";
import { afterAll } from "vitest";
import { buildNative } from "../../../native/build.mjs";
import { NODE_ENVIRONMENT, nodeReadPaths } from "../launch-plans.ts";

const root = resolve(import.meta.dirname, "../../../..");
export const addonPath = join(root, "dist", "native.node");

export interface ChildOptions {
  readonly profile: "owner" | "gateway" | "ledger" | "proxy" | "aggregator" | "builtin" | "egress";
  readonly when: "free" | "sealed" | "tried";
  readonly acts: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly write?: readonly string[];
  readonly trees?: readonly string[];
  /** Descriptors from 3 up. */
  readonly descriptors?: readonly number[];
  /** Off: started without Landlock, by whatever mistake. */
  readonly landlock?: "require" | "off";
  readonly netNamespace?: "require" | "off";
}

export interface ChildEnd {
  readonly code: number | null;
  readonly signal: string | null;
  readonly errors: string;
  /** How each act ended; `missing` and `failed` are the seal's own. */
  readonly ends: Readonly<Record<string, string>>;
}

let folder: string | null = null;
afterAll(() => {
  if (folder !== null) rmSync(folder, { recursive: true, force: true });
  folder = null;
});

/** Compiles a program of this folder and the native code: call once, at the top of a test file. Returns its bundle. */
export async function buildChild(name: "sealed-child" | "granted-gateway"): Promise<string> {
  await buildNative(root, join(root, "dist"));
  folder ??= mkdtempSync(join(tmpdir(), "jail-"));
  const outfile = join(folder, `${name}.cjs`);
  buildSync({
    entryPoints: [join(import.meta.dirname, `${name}.ts`)],
    outfile,
    bundle: true,
    platform: "node",
    format: "cjs",
    target: "node20",
    logLevel: "error",
    // The bundle lies elsewhere than the addon.
    define: { __dirname: JSON.stringify(join(root, "dist")) },
  });
  return outfile;
}

function childLaunch(bundle: string, options: ChildOptions): Launch {
  const isRoot = process.getuid?.() === 0;
  const grants = nodeReadPaths(process.execPath, [bundle, addonPath]);
  return {
    parentPid: process.pid,
    command: process.execPath,
    args: [bundle, options.profile, options.when, ...options.acts],
    grants: { ...grants, write: [...grants.write, ...(options.write ?? [])] },
    trees: options.trees ?? [],
    keepFds: (options.descriptors ?? []).map((_, index) => index + 3),
    landlock: options.landlock ?? "require",
    netNamespace: options.netNamespace ?? "off",
    ...(options.profile === "egress" ? { mayDial: true as const } : {}),
    env: { ...NODE_ENVIRONMENT, ...options.env },
    ...(isRoot ? { asRoot: true, capabilities: ["kill"] as const } : {}),
  };
}

/** For the child's output and for its errors, opened as its log is. `take` closes and reads. */
function logs() {
  return ["output", "errors"].map((name) => {
    const path = join(mkdtempSync(join(folder ?? tmpdir(), "log-")), name);
    const fd = openSync(path, "a");
    const take = () => {
      closeSync(fd);
      return readFileSync(path, "utf8");
    };
    return { fd, take };
  });
}

/** Runs a child to its end. `free` ones start without a launcher, as anything else on this machine does. */
export async function runChild(bundle: string, options: ChildOptions): Promise<ChildEnd> {
  const launch = childLaunch(bundle, options);
  const words =
    options.when === "free"
      ? { file: launch.command, args: [...launch.args] }
      : launchWords(launch, builtPath("capsem-launch"));
  // As in life: an owner says its words into pipes, a gateway into a log.
  const output = options.profile === "gateway" ? logs() : null;
  const stdio: StdioOptions = [
    "ignore",
    ...(output?.map(({ fd }) => fd) ?? ["pipe" as const, "pipe" as const]),
    ...(options.descriptors ?? []),
  ];
  const child = spawn(words.file, words.args, { stdio, env: { ...options.env }, timeout: 60_000 });
  let said = "";
  let errors = "";
  child.stdout?.on("data", (data) => {
    said += data;
  });
  child.stderr?.on("data", (data) => {
    errors += data;
  });
  const [code, signal] = await new Promise<[number | null, string | null]>((done) =>
    child.once("close", (...end) => done(end)),
  );
  if (output !== null) [said = "", errors = ""] = output.map(({ take }) => take());
  const line = said.split("\n").find((text) => text.startsWith("{")) ?? "{}";
  return { code, signal, errors, ends: JSON.parse(line) };
}
