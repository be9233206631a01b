import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Script } from "node:vm";
import { WORKER_KINDS } from "@capsem/api";
import { WORKER_NODE_FLAGS } from "@capsem/jail";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { BUNDLES, writeBundle } from "./bundles.mjs";
import { startWarm, writeLauncher, writeProgram } from "./code-cache.mjs";

const HEAD_BYTES = 128;
const folder = mkdtempSync(join(tmpdir(), "capsem-code-cache-"));
const made = join(folder, "made");
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Says at its end what became of each cache that a launcher had, and whether the schema library was started. */
const watch = join(folder, "watch.cjs");
writeFileSync(
  watch,
  `const vm = require("node:vm");
  const seen = [];
  vm.Script = class extends vm.Script {
    constructor(source, options) {
      super(source, options);
      seen.push(options.cachedData === undefined ? "none" : this.cachedDataRejected ? "rejected" : "taken");
    }
  };
  process.on("exit", () => {
    const schemas = globalThis.__zod_globalConfig === undefined ? "none" : "some";
    require("node:fs").writeSync(2, "\\ncaches: " + seen + "\\nschemas: " + schemas + "\\n");
  });`,
);

function run(program: string, args: readonly string[] = [], flags: readonly string[] = []) {
  const env = { PATH: process.env.PATH ?? "", CAPSEM_HOME: join(folder, "home"), CAPSEM_NO_AUTOSTART: "1" };
  const words = [...flags, "-r", watch, program, ...args];
  const { status, stdout, stderr } = spawnSync(process.execPath, words, { encoding: "utf8", env });
  const [, caches, schemas] = /^caches: (.*)\nschemas: (.*)$/m.exec(stderr) ?? [];
  return { status, stdout, stderr, caches, schemas };
}

const bundleOf = (word: string) => `
function deep() {
  throw new Error("thrown in deep");
}
/* A dash in a comment: — */
if (process.argv[2] === "fail") deep();
console.log("one and one is ${word}", __filename.split("/").at(-1), process.argv.slice(2).join());
`;

async function make(out: string, word: string) {
  mkdirSync(out);
  writeProgram(out, "sum-main", bundleOf(word));
  writeLauncher(out, "sum", "sum-main");
  await startWarm(out, "sum", { programs: ["sum-main"] }).ended;
}

beforeAll(() => make(made, "two"));

function copyOf(name: string): string {
  const copy = join(folder, name.replaceAll(/\W/g, "-"));
  mkdirSync(copy);
  for (const file of readdirSync(made)) copyFileSync(join(made, file), join(copy, file));
  return copy;
}

/** The cache with one word of its code changed, in the first of the two copies alone. */
function withOtherWord(cache: Buffer): Buffer {
  const at = cache.indexOf("one and one is two");
  expect(at).toBeGreaterThan(HEAD_BYTES);
  const damaged = Buffer.from(cache);
  damaged.write("six", at + "one and one is ".length);
  return damaged;
}

describe("a program with a code cache", () => {
  it("takes it, and writes nothing", () => {
    const before = readdirSync(made).map((file) => [file, statSync(join(made, file)).mtimeMs]);
    expect(run(join(made, "sum.cjs"), ["a", "b"])).toMatchObject({
      status: 0,
      stdout: "one and one is two sum-main.cjs a,b\n",
      caches: "taken",
    });
    expect(readdirSync(made).map((file) => [file, statSync(join(made, file)).mtimeMs])).toEqual(before);
  });

  it.each<[string, (cache: Buffer) => Buffer | null]>([
    ["missing", () => null],
    ["empty", () => Buffer.alloc(0)],
    ["shorter than its head", (cache) => cache.subarray(0, 100)],
    ["cut in the first copy of its code", (cache) => cache.subarray(0, HEAD_BYTES + 1000)],
    ["cut at its end", (cache) => cache.subarray(0, -2)],
    ["of an odd length", (cache) => cache.subarray(0, -1)],
    ["zeros after its head", (cache) => Buffer.concat([cache.subarray(0, HEAD_BYTES), Buffer.alloc(9000)])],
    ["damaged", withOtherWord],
    ["of another Node", (cache) => Buffer.from(cache.toString("latin1").replace(/ v\d+/, " v9"), "latin1")],
  ])("runs without it when it is %s", (name, change) => {
    const copy = copyOf(name);
    const path = join(copy, "sum-main.cache");
    const changed = change(readFileSync(path));
    if (changed === null) rmSync(path);
    else writeFileSync(path, changed);
    const { status, stdout, caches } = run(join(copy, "sum.cjs"));
    expect({ status, stdout }).toEqual({ status: 0, stdout: "one and one is two sum-main.cjs \n" });
    // Zeros twice are as they were written; V8 knows them for no code.
    expect(caches).toBe(name === "zeros after its head" ? "rejected" : "none");
  });

  it("is not run from damaged code, which V8 alone would run", () => {
    const cache = readFileSync(join(made, "sum-main.cache"));
    const cachedData = withOtherWord(cache).subarray(HEAD_BYTES, (cache.length + HEAD_BYTES) / 2);
    const script = new Script(readFileSync(join(made, "sum-main.cjs"), "latin1"), {
      filename: join(made, "sum-main.cjs"),
      cachedData,
    });
    expect(script.cachedDataRejected).toBe(false);
    const log = vi.spyOn(console, "log").mockReturnValue();
    script.runInThisContext()({}, null, {}, "");
    expect(log).toHaveBeenCalledWith("one and one is six", "", expect.anything());
    log.mockRestore();
  });

  it("runs without it when it is of an older build, of the same length", async () => {
    const copy = copyOf("older");
    const other = join(folder, "six");
    await make(other, "six");
    copyFileSync(join(other, "sum-main.cjs"), join(copy, "sum-main.cjs"));
    expect(run(join(copy, "sum.cjs"))).toMatchObject({
      stdout: "one and one is six sum-main.cjs \n",
      caches: "none",
    });
  });

  it("runs without it when a folder is in its place", () => {
    const copy = copyOf("folder");
    rmSync(join(copy, "sum-main.cache"));
    mkdirSync(join(copy, "sum-main.cache"));
    expect(run(join(copy, "sum.cjs"))).toMatchObject({ status: 0, caches: "none" });
  });

  it("runs with other flags of V8, which refuses the cache", () => {
    expect(run(join(made, "sum.cjs"), [], ["--max-lazy"])).toMatchObject({
      status: 0,
      stdout: "one and one is two sum-main.cjs \n",
      caches: "rejected",
    });
  });

  it("has the program's file, line and function in a stack trace", () => {
    const { status, stderr } = run(join(made, "sum.cjs"), ["fail"]);
    expect(status).not.toBe(0);
    const line = readFileSync(join(made, "sum-main.cjs"), "utf8")
      .split("\n")
      .findIndex((text) => text.includes("throw new Error"));
    expect(stderr).toContain(`at deep (${join(made, "sum-main.cjs")}:${line + 1}:9)`);
  });

  it("is refused by the build when the warm run does not load it", async () => {
    const copy = copyOf("not loaded");
    const { ended } = startWarm(copy, "sum", { programs: ["sum-main", "sum-more"] });
    await expect(ended).rejects.toThrow("Cannot make the code cache of sum");
    expect(readdirSync(copy).filter((file) => file.endsWith(".tmp"))).toEqual([]);
  });
});

describe("the build", () => {
  const root = resolve(import.meta.dirname, "..");
  const out = join(folder, "dist");

  it("makes code caches that this Node takes, and a CLI that makes no schema before its first request", async () => {
    mkdirSync(out);
    const rows = BUNDLES.filter(({ name }) => name === "cli" || name === "image");
    for (const row of rows) await writeBundle(root, out, row);
    for (const { warm } of rows) await warm?.(out);
    expect(run(join(out, "cli.cjs"), ["version"])).toMatchObject({ status: 0, caches: "taken" });
    expect(run(join(out, "image.cjs"), ["--help"])).toMatchObject({ status: 0, caches: "taken" });
    // No service runs: it is asked for, and nothing more.
    const asked = run(join(out, "cli.cjs"), ["run", "true"]);
    expect(asked).toMatchObject({ status: 125, caches: "taken", schemas: "none" });
    expect(asked.stderr).toContain("Cannot reach the service");
    const checked = run(join(out, "cli.cjs"), ["triage", "--since", "a while"]);
    expect(checked).toMatchObject({ caches: "taken", schemas: "some" });
  }, 60_000);

  const programs = BUNDLES.flatMap(({ name, main = `${name}-main`, warm }) => (warm ? [{ name, main }] : []));
  it.each(programs)(
    "has made one that is taken by $name, started as the product starts it",
    ({ name, main }) => {
      const flags = WORKER_KINDS.some((kind) => kind === name) ? WORKER_NODE_FLAGS : [];
      const load = `
      const { readFileSync } = require("node:fs");
      const [name] = process.argv.slice(1);
      const cache = readFileSync(name + ".cache");
      const cachedData = cache.subarray(${HEAD_BYTES}, (cache.length + ${HEAD_BYTES}) / 2);
      const source = readFileSync(name + ".cjs", "latin1");
      const { cachedDataRejected } = new (require("node:vm").Script)(source, { filename: name + ".cjs", cachedData });
      console.log(cachedDataRejected);`;
      const words = [...flags, "-e", load, join(root, "dist", main)];
      expect(spawnSync(process.execPath, words, { encoding: "utf8" })).toMatchObject({ stdout: "false\n" });
    },
  );

  it("makes those of a worker with the flags that the service starts it with", async () => {
    const [row] = BUNDLES.filter(({ name }) => name === "aggregator");
    if (row === undefined) throw new Error("there is no aggregator");
    const worker = join(folder, "worker");
    mkdirSync(worker);
    copyFileSync(join(root, "dist", "native.node"), join(worker, "native.node"));
    await writeBundle(root, worker, row);
    await row.warm?.(worker);
    expect(run(join(worker, "aggregator.cjs"), [], WORKER_NODE_FLAGS)).toMatchObject({ caches: "taken" });
    expect(run(join(worker, "aggregator.cjs"))).toMatchObject({ caches: "rejected" });
  }, 60_000);
});
