// Makes a bundle quick to start: `NAME.cjs` is a launcher (launcher.cjs), `NAME-main.cjs` the bundle, and V8's code
// cache of it lies beside it. The cache is taken at the end of a run: it has the functions that the run needed.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { openSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const self = fileURLToPath(import.meta.url);
const HEAD_BYTES = 128;
const WARM_TIMEOUT_MS = 60_000;

/** Writes the text of a bundle as a program for the launcher. At no time is it there in part. */
export function writeProgram(out, name, bundle) {
  // Plain ASCII is the quickest to read. The bundler leaves other characters in comments alone.
  const body = bundle.replace(/[^\0-\x7f]/g, escapeOf);
  const code = `(function (exports, require, module, __filename, __dirname) {\n${body}\n})\n`;
  const digest = createHash("sha256").update(code).digest("hex");
  replace(join(out, `${name}.cjs`), `//${digest}\n${code}`);
}

function escapeOf(unit) {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** The file that is run: it loads `main` of the same folder. */
export function writeLauncher(out, name, main) {
  const path = join(out, `${name}.cjs`);
  const text = readFileSync(join(dirname(self), "launcher.cjs"), "utf8");
  replace(
    path,
    text.replace("@PROGRAM@", () => main),
    0o755,
  );
}

function replace(path, data, mode = 0o644) {
  const fresh = `${path}.${process.pid}.tmp`;
  writeFileSync(fresh, data, { mode });
  renameSync(fresh, path);
}

/**
 * Starts `NAME.cjs` of `out` so that it leaves the caches of `programs` when it ends. `argv0` is what the program
 * takes for its own path, `flags` are Node's. The caller has it do what counts, and awaits `ended`.
 */
export function startWarm(out, name, { programs, args = [], env = {}, stdio = [], argv0, flags = [] }) {
  const fresh = programs.map((program) => join(out, `${program}.cache.${process.pid}.tmp`));
  const words = [
    ...flags,
    self,
    join(out, `${name}.cjs`),
    argv0 ?? join(out, `${name}.cjs`),
    String(fresh.length),
  ];
  const child = spawn(process.execPath, [...words, ...fresh, ...args], {
    stdio: ["pipe", "pipe", "pipe", ...stdio],
    timeout: WARM_TIMEOUT_MS,
    killSignal: "SIGKILL",
    env: { PATH: process.env.PATH ?? "", ...env },
  });
  child.stdin.on("error", () => undefined);
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (part) => {
      text += part;
    });
  const ended = new Promise((done, fail) => {
    child.on("error", fail);
    child.on("close", (code, signal) => {
      const isMade = fresh.every((path) => (statSync(path, { throwIfNoEntry: false })?.size ?? 0) > 0);
      for (const [index, path] of fresh.entries()) {
        if (isMade) renameSync(path, join(out, `${programs[index]}.cache`));
        else rmSync(path, { force: true });
      }
      if (isMade) done({ code, text });
      else fail(new Error(`Cannot make the code cache of ${name}: it ended with ${signal ?? code}: ${text}`));
    });
  });
  return { child, ended, said: () => text };
}

/** The started process: runs the launcher as Node would, and writes what V8 has compiled by the end. */
function recordRun([launcher, argv0, count, ...rest]) {
  const require = createRequire(launcher);
  const vm = require("node:vm");
  const scripts = new Map();
  vm.Script = class extends vm.Script {
    constructor(source, options) {
      super(source, options);
      scripts.set(basename(options.filename, ".cjs"), { script: this, digest: source.slice(2, 66) });
    }
  };
  // Opened now: a program that seals itself may not open a file later.
  const outputs = rest
    .splice(0, Number(count))
    .map((path) => ({ program: basename(path).split(".cache.")[0], fd: openSync(path, "w", 0o644) }));
  process.on("exit", () => {
    for (const { program, fd } of outputs) {
      const found = scripts.get(program);
      if (found === undefined) continue;
      const head = `${found.digest} ${process.version} ${process.platform} ${process.arch}`.padEnd(
        HEAD_BYTES,
      );
      const code = found.script.createCachedData();
      writeFileSync(fd, Buffer.concat([Buffer.from(head), code, code]));
    }
  });
  process.argv = [process.argv[0], argv0, ...rest];
  require(launcher);
}

if (process.argv[1] === self) recordRun(process.argv.slice(2));
