import { execFile } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Rig, startWays } from "./testing/ways.ts";

/** What a page loads of the published package, minified. */
const GZIP_BYTES_MAX = 15_000;
const run = promisify(execFile);
const modules = resolve(import.meta.dirname, "../../../node_modules");

let rig: Rig;
let app: string;
let published: string;
beforeAll(async () => {
  rig = await startWays();
  app = mkdtempSync(join(tmpdir(), "sdk-app-"));
  published = join(app, "node_modules/@capsem/sdk");
  mkdirSync(dirname(published), { recursive: true });
  await run(process.execPath, [resolve(import.meta.dirname, "../build.mjs"), published]);
}, 120_000);
afterAll(async () => {
  await rig.close();
  rmSync(app, { recursive: true, force: true });
});

const program = (entry: string, options: string) => `
  import { CapsemError, createClient } from "@capsem/sdk${entry}";
  const client = createClient(${options});
  const vm = await client.create({ memory_gib: 0.5 });
  await vm.fs.writeFile("x", "text");
  const text: string = await vm.fs.readFile("x", "utf8");
  const missing = await vm.fs.stat("none").catch((thrown) => thrown instanceof CapsemError ? thrown.code : "");
  const { state } = await vm.info();
  const wrong: "running" | "nonsense" = state === "creating" ? "nonsense" : "running";
  await vm.delete();
  client.close();
  console.log(text, missing, state, wrong);
`;

test.each(["", "/node"])(
  "the published entry %j works in Node without a package of ours or another's",
  async (entry) => {
    const options = JSON.stringify({ url: rig.url, token: rig.token() });
    writeFileSync(join(app, "app.ts"), program(entry, options));
    await build({
      entryPoints: [join(app, "app.ts")],
      outfile: join(app, "app.mjs"),
      format: "esm",
      logLevel: "error",
    });
    const { stdout } = await run(process.execPath, [join(app, "app.mjs")], { cwd: app });
    expect(stdout).toBe("text ENOENT running running\n");
  },
);

test("its types are complete: a strange project and the README compile with them, and a wrong use does not", async () => {
  for (const name of ["zod", "@types"]) symlinkSync(join(modules, name), join(app, "node_modules", name));
  const options = {
    lib: ["ES2023", "ESNext.Disposable", "DOM"],
    types: ["node"],
    strict: true,
    noEmit: true,
  };
  const compilerOptions = { ...options, module: "nodenext", target: "es2023", skipLibCheck: false };
  writeFileSync(join(app, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.ts"] }));
  writeFileSync(join(app, "package.json"), '{"type":"module"}');
  const readme = readFileSync(join(published, "README.md"), "utf8");
  const examples = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)];
  for (const [at, [, code = ""]] of examples.entries()) writeFileSync(join(app, `readme-${at}.ts`), code);
  const url = '{ url: "http://127.0.0.1", token: "t" }';
  writeFileSync(join(app, "right.ts"), `${program("", url)}\nexport type { VmFs } from "@capsem/sdk/node";`);
  const tsc = createRequire(import.meta.url)
    .resolve("typescript/package.json")
    .replace("package.json", "bin/tsc");
  const compile = () =>
    run(process.execPath, [tsc, "-p", app]).then(
      () => "",
      (failed: { stdout: string }) => failed.stdout,
    );
  expect(await compile()).toBe("");
  writeFileSync(join(app, "right.ts"), program("", url).replace('"creating"', '"no state"'));
  expect(await compile()).toMatch(/no state/);
}, 120_000);

test("its file is installed in a fresh folder, where the README's first example runs as it stands", async () => {
  const fresh = mkdtempSync(join(tmpdir(), "sdk-fresh-"));
  const npm = (...args: string[]) => run("npm", [...args, "--offline", "--ignore-scripts"], { cwd: fresh });
  try {
    // The two packages that come along, as files too: no registry is asked.
    await npm("pack", "--silent", join(modules, "ws"), join(modules, "zod"));
    const others = readdirSync(fresh).map((name) => `./${name}`);
    await npm("init", "-y");
    await npm(
      "install",
      "--no-audit",
      "--no-fund",
      join(dirname(published), "capsem-sdk-0.1.0.tgz"),
      ...others,
    );
    const [, code = ""] =
      /```js\n([\s\S]*?)```/.exec(readFileSync(join(published, "README.md"), "utf8")) ?? [];
    writeFileSync(join(fresh, "hello.mjs"), code);
    const stream = `${code.split("const vm")[0]}
      const vm = client.vm("vm_aaaaaaaaaaaaaaaa");
      await vm.stream("true").id.catch(({ kind, message }) => console.log(kind, message));`;
    writeFileSync(join(fresh, "stream.mjs"), stream);
    const env = { PATH: process.env.PATH ?? "", GATEWAY_URL: rig.url, TOKEN_FILE: rig.tokenFile };
    const node = async (name: string) => (await run(process.execPath, [name], { cwd: fresh, env })).stdout;
    expect(await node("hello.mjs")).toBe("3 hello world\n");
    expect(await node("stream.mjs")).toMatch(/^vm_not_found/);
    rmSync(join(fresh, "node_modules/ws"), { recursive: true });
    expect(await node("hello.mjs")).toBe("3 hello world\n");
    expect(await node("stream.mjs")).toBe(
      'unavailable Cannot open stream: the package "ws" is not installed (npm install ws)\n',
    );
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}, 120_000);

test("it has no source, no test and no schema library in it, and a page loads little", async () => {
  const files = readdirSync(published, { recursive: true, encoding: "utf8" });
  expect(
    files.filter((path) => /\.test\.|testing/.test(path) || (/\.ts$/.test(path) && !/\.d\.ts$/.test(path))),
  ).toEqual([]);
  const manifest = JSON.parse(readFileSync(join(published, "package.json"), "utf8")) as {
    dependencies: object;
  };
  expect(Object.keys(manifest.dependencies)).toEqual(["ws", "zod"]);
  const { outputFiles } = await build({
    entryPoints: [join(published, "index.js")],
    bundle: true,
    minify: true,
    platform: "browser",
    format: "esm",
    write: false,
    logLevel: "error",
  });
  expect(gzipSync(outputFiles[0]?.contents ?? "").length).toBeLessThan(GZIP_BYTES_MAX);
});
