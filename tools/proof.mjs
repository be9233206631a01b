// Makes ready what the proof stage needs: MCP clients, servers and suites that others wrote, and a network of loopback alone.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
/** Name of a set and its folder with package.json, package-lock.json and, once installed, node_modules. */
const CLIENT_SETS = {
  clients: "tests/proof/clients",
  servers: "tests/proof/servers",
  agents: "tests/proof/agents",
};
// 300 MB come over the network; a registry that has not answered by then is one we cannot use.
const INSTALL_TIMEOUT_MS = 5 * 60_000;

/** Runs npm to its end in a process group of its own, so that a deadline ends its children too. */
function npm(args, cwd) {
  return new Promise((done) => {
    const child = spawn("npm", args, { cwd, stdio: ["ignore", "pipe", "pipe"], detached: true });
    let tail = "";
    const keep = (chunk) => {
      tail = (tail + chunk).slice(-4000);
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    const end = setTimeout(() => {
      tail += `\nno end within ${INSTALL_TIMEOUT_MS / 1000} s`;
      process.kill(-child.pid, "SIGKILL");
    }, INSTALL_TIMEOUT_MS);
    child.on("error", (cause) => {
      clearTimeout(end);
      done({ code: 127, tail: cause.message });
    });
    child.on("close", (code) => {
      clearTimeout(end);
      done({ code, tail });
    });
  });
}

/** null when the set is installed, else why it is not. Idempotent: a stamp holds the lock file's hash. */
async function installClients(set) {
  if (process.platform !== "linux" || process.arch !== "x64")
    return `the programs are built for linux x64, not ${process.platform} ${process.arch}`;
  const folder = join(root, CLIENT_SETS[set]);
  const stamp = join(folder, "node_modules", ".capsem-lock");
  const wanted = createHash("sha256")
    .update(readFileSync(join(folder, "package-lock.json")))
    .digest("hex");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return null;
  process.stderr.write(`capsem: installing ${CLIENT_SETS[set]} (several hundred MB)\n`);
  rmSync(stamp, { force: true });
  // Scripts of strangers do not run; none of these programs needs one.
  const flags = ["--ignore-scripts", "--no-audit", "--no-fund"];
  // Without a network npm would ask for each of 300 packages, and again; what is cached needs no question.
  const patience = ["--prefer-offline", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"];
  const { code, tail } = await npm(["ci", ...flags, ...patience], folder);
  if (code !== 0) {
    const line = tail.split("\n").find((text) => /npm error|no end within|ENOENT/.test(text)) ?? tail.trim();
    return `npm could not install ${CLIENT_SETS[set]}: ${line.slice(0, 200)}`;
  }
  writeFileSync(stamp, wanted);
  return null;
}

const LOOPBACK_ONLY = ["-n", "sh", "-c", 'ip link set lo up && exec "$0" "$@"'];

/**
 * Environment of the stage, and the words before its command. Its programs get a network namespace with nothing but
 * loopback where that can be had; what is missing is printed and goes to the tests, which skip with the reason.
 */
export async function prepareProof(withAgents) {
  const missing =
    (await installClients("clients")) ??
    (await installClients("servers")) ??
    (withAgents ? await installClients("agents") : null);
  const canIsolate = spawnSync("unshare", [...LOOPBACK_ONLY, "true"], { stdio: "ignore" }).status === 0;
  if (!canIsolate)
    console.log("proof: on this machine's own network (a namespace with loopback alone needs root and ip)");
  return {
    env: {
      ...(missing === null ? {} : { CAPSEM_PROOF_MISSING: missing }),
      ...(withAgents ? { CAPSEM_PROOF_AGENTS: "1" } : {}),
    },
    prefix: canIsolate ? ["unshare", ...LOOPBACK_ONLY] : [],
  };
}
