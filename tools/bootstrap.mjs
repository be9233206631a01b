// Makes a bare machine ready: Debian packages, npm packages, build, guest image. Every step is idempotent and
// may be interrupted: the next run goes on. Plain JavaScript, because nothing is installed when it starts.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { DEBIAN_PACKAGES, USER_PACKAGES } from "./debian-packages.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const FREE_BYTES_MIN = 4 * 1024 ** 3;
const STEP_TIMEOUT_MS = 20 * 60_000;
const children = new Set();

class Stop extends Error {}

function say(line) {
  process.stderr.write(`capsem: ${line}\n`);
}

function found(probe) {
  const places = probe.startsWith("/")
    ? [probe]
    : `${process.env.PATH ?? ""}:/usr/sbin:/sbin`.split(":").map((dir) => join(dir, probe));
  return places.some((path) => {
    try {
      accessSync(path, probe.endsWith(".h") ? constants.R_OK : constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Runs a program to its end; its output is shown only when it fails. */
function run(command, args, options = {}) {
  return new Promise((done, fail) => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: ["ignore", "pipe", "pipe"],
      timeout: STEP_TIMEOUT_MS,
      ...options,
    });
    children.add(child);
    let tail = "";
    const keep = (chunk) => {
      tail = (tail + chunk).slice(-4000);
    };
    child.stdout?.on("data", keep);
    child.stderr?.on("data", keep);
    child.on("error", (cause) => fail(new Stop(`Cannot start ${command}: ${cause.message}`)));
    child.on("close", (code, signal) => {
      children.delete(child);
      if (code === 0) done(tail);
      else
        fail(
          Object.assign(new Stop(`${command} ${args[0] ?? ""} ended with ${signal ?? `code ${code}`}`), {
            tail,
          }),
        );
    });
  });
}

function aptPrefix(names) {
  if (process.getuid() === 0) return [];
  const manual = `apt-get install --no-install-recommends ${names.join(" ")}`;
  if (!found("sudo"))
    throw new Stop(
      `Cannot install Debian packages: not root and no sudo. Run this as root, then try again:\n\n  ${manual}\n`,
    );
  return process.stdin.isTTY ? ["sudo"] : ["sudo", "-n"];
}

async function debianPackages() {
  const wanted = process.getuid() === 0 ? DEBIAN_PACKAGES : [...DEBIAN_PACKAGES, ...USER_PACKAGES];
  const missing = wanted.filter(({ probe }) => !found(probe));
  if (missing.length === 0) return;
  const names = missing.map(({ name }) => name);
  if (!found("apt-get"))
    throw new Stop(
      `Cannot install ${names.join(", ")}: no apt-get on this machine. Install what gives ${missing.map(({ probe }) => probe).join(", ")}`,
    );
  const prefix = aptPrefix(names);
  say(`installing Debian packages: ${names.join(" ")}`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const apt = (...args) =>
    run([...prefix, "apt-get"][0], [...prefix, "apt-get", ...args].slice(1), {
      env,
      stdio: [prefix.length > 0 && process.stdin.isTTY ? "inherit" : "ignore", "pipe", "pipe"],
    });
  const install = () =>
    apt("-y", "-q", "-o", "DPkg::Lock::Timeout=300", "install", "--no-install-recommends", ...names);
  try {
    await apt("-q", "-o", "DPkg::Lock::Timeout=300", "update");
    await install();
  } catch (cause) {
    const manual = `${prefix.length > 0 || process.getuid() !== 0 ? "sudo " : ""}apt-get install --no-install-recommends ${names.join(" ")}`;
    throw new Stop(
      `Cannot install Debian packages: ${cause.message}\n${cause.tail ?? ""}\nMend what it names (network, disk, rights), or run this yourself and try again:\n\n  ${manual}\n`,
    );
  }
}

const lockHash = () =>
  createHash("sha256")
    .update(readFileSync(join(root, "package-lock.json")))
    .update(process.version)
    .digest("hex");
const npmStamp = join(root, "node_modules", ".capsem-lock");

async function npmPackages() {
  if (existsSync(npmStamp) && readFileSync(npmStamp, "utf8") === lockHash()) return;
  say("installing npm packages");
  try {
    await run("npm", ["ci", "--no-audit", "--no-fund"]);
  } catch (cause) {
    throw new Stop(
      `Cannot install npm packages: ${cause.message}\n${cause.tail ?? ""}\nCheck the network and the free disk space, then try again`,
    );
  }
  writeFileSync(npmStamp, lockHash());
}

async function bundles() {
  say("building");
  mkdirSync(join(root, "dist"), { recursive: true });
  rmSync(join(root, "dist", ".ready"), { force: true });
  try {
    await run(process.execPath, [join(root, "tools", "build.mjs")]);
  } catch (cause) {
    throw new Stop(`Cannot build: ${cause.message}\n${cause.tail ?? ""}`);
  }
}

function cacheFolder() {
  return process.env.CAPSEM_CACHE ?? process.env.CAPSEM_HOME ?? join(process.env.HOME ?? "/root", ".capsem");
}

const dist = (name) => join(root, "dist", name);

async function guestImage() {
  const cache = cacheFolder();
  mkdirSync(cache, { recursive: true, mode: 0o700 });
  const { bavail, bsize } = statfsSync(cache);
  if (!existsSync(join(cache, "images", "by-recipe")) && bavail * bsize < FREE_BYTES_MIN) {
    throw new Stop(
      `Cannot build the guest image: ${Math.floor((bavail * bsize) / 1024 ** 2)} MiB free in ${cache}, needs ${FREE_BYTES_MIN / 1024 ** 2} MiB. Free some space or set CAPSEM_CACHE to a folder on another disk`,
    );
  }
  try {
    await run(
      process.execPath,
      [
        dist("image.cjs"),
        "build",
        "--cache",
        cache,
        "--agent",
        dist("guest.cjs"),
        "--helper",
        dist("capsem-helper"),
      ],
      {
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
  } catch (cause) {
    throw new Stop(cause.message);
  }
}

/** Names of the steps, in order; CAPSEM_STOP_AFTER ends after one of them, so that a test can interrupt there. */
const STEPS = [
  ["packages", () => Promise.all([debianPackages(), npmPackages()])],
  ["build", bundles],
  ["image", guestImage],
];

async function main() {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.once(signal, () => {
      for (const child of children) child.kill("SIGTERM");
      say(`interrupted; run the same command again to go on`);
      process.exit(130);
    });
  }
  const started = Date.now();
  for (const [name, step] of STEPS) {
    await step();
    if (process.env.CAPSEM_STOP_AFTER === name) throw new Stop(`stopped after ${name}`);
  }
  // By its second line, ./capsem knows this Node again.
  const { dev, ino, size, mtimeMs } = statSync(process.execPath);
  const node = `${dev} ${ino} ${size} ${Math.floor(mtimeMs / 1000)}`;
  writeFileSync(join(root, "dist", ".ready"), `${process.version}\n${node}\n`);
  // The service makes the first snapshot after this, and the command that waits for it says so.
  if (Date.now() - started > 10_000)
    say(`built everything in ${Math.round((Date.now() - started) / 1000)} s`);
}

main().catch((cause) => {
  for (const child of children) child.kill("SIGTERM");
  say(cause instanceof Stop ? cause.message : (cause.stack ?? String(cause)));
  process.exit(1);
});
