// Compiles the addon, the launcher and the gatekeeper, each only when its sources, flags or compiler changed.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const COMPILE_TIMEOUT_MS = 60_000;
const WARNINGS = ["-Wall", "-Wextra", "-Werror"];
const HARDENING = ["-O2", "-fstack-protector-strong", "-Wl,-z,relro,-z,now,-z,noexecstack"];

/**
 * Builds `native.node`, `capsem-launch` and `capsem-gatekeeper` from `<rootDir>/packages/native` into `outDir`.
 * Returns the names that were compiled; an empty list means that everything was fresh.
 */
export async function buildNative(rootDir, outDir) {
  const home = join(rootDir, "packages", "native");
  mkdirSync(outDir, { recursive: true });
  const items = [addon(rootDir, home), program(home, "capsem-launch"), program(home, "capsem-gatekeeper")];
  const built = await Promise.all(items.map((item) => build(item, outDir)));
  return built.filter((name) => name !== undefined);
}

function addon(rootDir, home) {
  const { include_dir } = createRequire(join(rootDir, "package.json"))("node-api-headers");
  const files = readdirSync(join(home, "src")).filter((name) => /\.(cc|h)$/.test(name));
  const sources = files.sort().map((name) => join(home, "src", name));
  const language = ["-std=c++17", "-fno-exceptions", "-fno-rtti", "-DNAPI_VERSION=8"];
  const shape = ["-shared", "-fPIC", "-fvisibility=hidden", "-isystem", include_dir];
  return { name: "native.node", compiler: "g++", sources, flags: [...language, ...shape] };
}

function program(home, name) {
  const sources = [join(home, "launcher", `${name}.c`)];
  return { name, compiler: "gcc", sources, flags: ["-std=gnu17", "-fPIE", "-pie"] };
}

async function build({ name, compiler, sources, flags }, outDir) {
  const args = [...flags, ...WARNINGS, ...HARDENING];
  const target = join(outDir, name);
  const stampPath = join(outDir, `.${name}.stamp`);
  const stamp = stampOf([compiler, process.arch, ...args], sources);
  if (textOr(stampPath) === stamp && textOr(target) !== undefined) return undefined;
  // A running process may have the old file mapped: it is replaced as a whole, never written into.
  const fresh = join(outDir, `.${name}.${process.pid}.tmp`);
  try {
    const units = sources.filter((path) => !path.endsWith(".h"));
    await compile(compiler, [...args, ...units, "-o", fresh], name);
    renameSync(fresh, target);
  } finally {
    rmSync(fresh, { force: true });
  }
  writeFileSync(stampPath, stamp);
  return name;
}

function stampOf(words, sources) {
  const hash = createHash("sha256").update(words.join("\0"));
  for (const path of sources) hash.update(`\0${path}\0`).update(readFileSync(path));
  return hash.digest("hex");
}

function textOr(path) {
  try {
    return readFileSync(path, "latin1");
  } catch (thrown) {
    if (thrown.code === "ENOENT") return undefined;
    throw thrown;
  }
}

function compile(compiler, args, name) {
  return new Promise((resolve, reject) => {
    const child = spawn(compiler, args, {
      stdio: ["ignore", "inherit", "inherit"],
      signal: AbortSignal.timeout(COMPILE_TIMEOUT_MS),
    });
    child.once("error", (thrown) => {
      const remedy = "install it (Debian and Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++)";
      const missing = thrown.code === "ENOENT" ? `${compiler} is not installed; ${remedy}` : thrown.message;
      reject(new Error(`Cannot build ${name}: ${missing}`, { cause: thrown }));
    });
    child.once("close", (code, signal) => {
      if (code === 0) resolve();
      else reject(new Error(`Cannot build ${name}: ${compiler} ended with ${signal ?? code}`));
    });
  });
}
