import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createNodeClient } from "@capsem/sdk/node";
import { afterEach, expect, test } from "vitest";
import { isAlive, processesOfVm, startRig, until } from "../../../tests/support/rig.ts";

const dist = resolve(import.meta.dirname, "../../../dist");
const isRoot = process.getuid?.() === 0;

const cleanUps: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

function statusOf(pid: number): Map<string, string> {
  const rows = readFileSync(`/proc/${pid}/status`, "utf8").split("\n");
  return new Map(rows.map((row) => [row.split(":")[0] ?? "", row.split(":")[1]?.trim() ?? ""]));
}

/** A service on a kernel without Landlock: a filter that its children inherit says that there is no such call. */
async function startWithoutLandlock(settings: Record<string, unknown>) {
  const home = mkdtempSync(join(tmpdir(), "capsem-unconfined-"));
  const lines = Object.entries(settings).map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`);
  writeFileSync(join(home, "settings.toml"), lines.join(""));
  const program = `
    const [addonPath, service, home] = process.argv.slice(1);
    const addon = require(addonPath), filter = Buffer.alloc(32);
    // load the number; landlock_create_ruleset: ENOSYS; everything else: allowed
    [[0x20, 0, 0, 0], [0x15, 0, 1, 444], [6, 0, 0, 0x00050026], [6, 0, 0, 0x7fff0000]].forEach(([c, t, f, k], i) => {
      filter.writeUInt16LE(c, i * 8); filter[i * 8 + 2] = t; filter[i * 8 + 3] = f; filter.writeUInt32LE(k, i * 8 + 4); });
    addon.setNoNewPrivileges();
    addon.installFilter(filter);
    const child = require("node:child_process").spawn(process.execPath, [service, "--home", home], { stdio: "ignore" });
    process.on("SIGTERM", () => child.kill("SIGTERM"));
    child.on("exit", (code) => process.exit(code ?? 1));`;
  const cache = process.env.CAPSEM_CACHE ?? join(process.env.HOME ?? "/root", ".capsem");
  const child: ChildProcess = spawn(
    process.execPath,
    ["-e", program, join(dist, "native.node"), join(dist, "service.cjs"), home],
    {
      stdio: "ignore",
      env: {
        ...{ PATH: process.env.PATH ?? "", HOME: home, CAPSEM_HOME: home, CAPSEM_CACHE: cache },
        CAPSEM_POOL_SIZE: "0",
      },
    },
  );
  const client = createNodeClient({ home });
  cleanUps.push(async () => {
    client.close();
    child.kill("SIGTERM");
    await until("the service ended", 30_000, () => child.exitCode !== null || child.signalCode !== null);
    rmSync(home, { recursive: true, force: true });
  });
  await until("the service answers", 30_000, () =>
    client.health().then(
      () => true,
      () => false,
    ),
  );
  return { home, client };
}

test("the owner of a running VM is sealed in every thread, without network, with three capabilities at most", async () => {
  const rig = await startRig();
  cleanUps.push(() => rig.stop());
  const vm = await rig.create();
  expect(await rig.sh(vm, "echo up")).toBe("up\n");
  const { owner, hypervisor } = processesOfVm(rig.home, vm.id);
  const threads = readdirSync(`/proc/${owner}/task`).map((thread) =>
    readFileSync(`/proc/${owner}/task/${thread}/status`, "utf8"),
  );
  // Main, the compiler's and collector's, and the pool's four.
  expect(threads.length).toBeGreaterThan(8);
  for (const text of threads) {
    expect(text).toContain("NoNewPrivs:\t1\n");
    expect(text).toContain("Seccomp:\t2\n");
    expect(text).toMatch(/Seccomp_filters:\t2\n/);
  }
  const status = statusOf(owner);
  expect(status.get("CapBnd")).toBe("0000000000000000");
  expect(status.get("CapEff")).toBe(isRoot ? "00000000000000e0" : "0000000000000000");
  expect(statusOf(hypervisor).get("CapPrm")).toBe("0000000000000000");
  // Ours, which denies sockets, and its own sandbox.
  expect(Number(statusOf(hypervisor).get("Seccomp_filters"))).toBe(2);
  expect(readFileSync(`/proc/${owner}/limits`, "utf8")).toMatch(/Max file size +10485760 +10485760 /);
  expect(readFileSync(`/proc/${hypervisor}/limits`, "utf8")).toMatch(/Max file size +unlimited +unlimited /);
  const network = (pid: number | "self") => readlinkSync(`/proc/${pid}/ns/net`);
  expect(network(owner)).not.toBe(network("self"));
  expect(network(hypervisor)).toBe(network(owner));
  expect(readFileSync(`/proc/${owner}/environ`, "utf8")).not.toContain(rig.home);
});

test("output of jobs is kept although the owner is sealed, and its ring files stay in its own folder", async () => {
  const rig = await startRig();
  cleanUps.push(() => rig.stop());
  const vm = await rig.create();
  expect(await rig.sh(vm, "yes capsem | head -c 3000000 | wc -c")).toBe("3000000\n");
  const folder = join(rig.home, "vms", vm.id);
  expect(readdirSync(join(folder, "jobs")).every((name) => name.endsWith(".ring"))).toBe(true);
  // A stop in order needs the signal, the reaping and the last words.
  const { owner, hypervisor } = processesOfVm(rig.home, vm.id);
  await vm.delete();
  await until("owner and hypervisor are gone", 20_000, () => !isAlive(owner) && !isAlive(hypervisor));
});

test("without Landlock a VM does not start and says why; with allow_unconfined it does, and says that", async () => {
  const refused = await startWithoutLandlock({});
  await expect(refused.client.vms.create({})).rejects.toThrow(
    /the ledger is away.*cannot confine it.*allow_unconfined/,
  );
  expect((await refused.client.status()).confinement.is_enforced).toBe(false);

  const allowed = await startWithoutLandlock({ "confinement.allow_unconfined": true });
  const vm = allowed.client.vm((await allowed.client.vms.create({})).id);
  expect((await vm.exec({ command: "echo up", timeout_secs: 60 })).stdout.data).toBe("up\n");
  const log = readFileSync(join(allowed.home, "vms", vm.id, "logs", "owner.jsonl"), "utf8");
  expect(log).toMatch(/owner is not confined.*this kernel has no Landlock/);
  // What could be had is had.
  expect(statusOf(processesOfVm(allowed.home, vm.id).owner).get("Seccomp")).toBe("2");
});
