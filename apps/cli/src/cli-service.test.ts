import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { type CliRunner, createCliRunner } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

let cli: CliRunner;

beforeAll(async () => {
  cli = await createCliRunner();
}, 60_000);
afterAll(() => cli.close());
beforeEach(async () => {
  await cli.run(["service", "stop", "--force"]);
});

const pid = () => Number(readFileSync(join(cli.home, "run/service.pid"), "utf8"));

test("the service is started by the first command and stays", async () => {
  expect(await cli.run(["service", "status"])).toMatchObject({ code: 1, stdout: "not running\n" });
  expect((await cli.run(["list", "--json"])).stdout).toBe('{"vms":[]}\n');
  const first = pid();
  expect(await cli.run(["service", "start"])).toMatchObject({ stdout: `already running, pid ${first}\n` });
});

test("CAPSEM_NO_AUTOSTART turns that off", async () => {
  const ran = await cli.run(["list"], { env: { CAPSEM_NO_AUTOSTART: "1" } });
  expect(ran).toMatchObject({ code: 1, stderr: expect.stringContaining("CAPSEM_NO_AUTOSTART is set") });
});

test("commands started together end with one service", async () => {
  const rans = await Promise.all(Array.from({ length: 4 }, () => cli.run(["status", "--json"])));
  const pids = rans.map((ran) => (JSON.parse(ran.stdout) as { pid: number }).pid);
  expect(rans.map((ran) => ran.code)).toEqual([0, 0, 0, 0]);
  expect(new Set(pids)).toEqual(new Set([pid()]));
}, 60_000);

test("a service that ends at once is an error with its last words", async () => {
  const script = join(cli.folder, "service.cjs");
  renameSync(script, `${script}.kept`);
  try {
    expect((await cli.run(["list"])).stderr).toContain("is not built");
    writeFileSync(script, 'console.error("no image here"); process.exit(3);');
    expect((await cli.run(["list"])).stderr).toBe(
      "capsem: Cannot start the service: it ended (exit code 3)\nno image here\n",
    );
  } finally {
    renameSync(`${script}.kept`, script);
  }
}, 30_000);

test("a stopped service is reported within 5 s with its pid, and --force ends it", async () => {
  await cli.run(["service", "start"]);
  const stopped = pid();
  process.kill(stopped, "SIGSTOP");
  const begun = Date.now();
  const ran = await cli.run(["list"]);
  expect(Date.now() - begun).toBeLessThan(5_000);
  expect(ran).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`the service (pid ${stopped}): its process is stopped`),
  });
  expect((await cli.run(["service", "stop"])).code).toBe(1);
  expect(await cli.run(["service", "stop", "--force"])).toMatchObject({
    code: 0,
    stdout: `stopped, pid ${stopped}\n`,
  });
  expect((await cli.run(["service", "stop", "--force"])).stdout).toBe("not running\n");
}, 30_000);

test("a pid file of long ago never makes a stranger die", async () => {
  mkdirSync(join(cli.home, "run"), { recursive: true });
  const file = join(cli.home, "run/service.pid");
  // A program that looks like the service, and does nothing: one of ours would start a service.
  const words = ["-e", "setInterval(() => undefined, 1_000)", "--", "service.cjs", "--home", cli.home];
  const stranger = spawn(process.execPath, words, { stdio: "ignore" });
  const end = once(stranger, "exit");
  writeFileSync(file, `${stranger.pid}\n`);
  execFileSync("touch", ["-d", "2001-01-01", file]);
  expect((await cli.run(["service", "stop", "--force"])).stdout).toBe("not running\n");
  expect(stranger.exitCode).toBe(null);
  stranger.kill("SIGKILL");
  await end;
});

test("service stop ends it in order", async () => {
  await cli.run(["create", "--name", "dev"]);
  const ran = await cli.run(["service", "stop", "--json"]);
  expect(JSON.parse(ran.stdout)).toMatchObject({ running: false, stopped: true });
  expect((await cli.run(["service", "status", "--json"])).stdout).toBe('{"running":false}\n');
});

test("doctor tells each need with a remedy and starts nothing", async () => {
  const ran = await cli.run(["doctor", "--json"]);
  const { checks } = JSON.parse(ran.stdout) as { checks: { name: string; state: string; remedy: string }[] };
  const names = [
    "Node.js",
    "QEMU",
    "qemu-img",
    "e2fsprogs",
    "mmdebstrap",
    "flock",
    "g++",
    "KVM",
    "home",
    "disk space",
    "guest image",
    "confinement",
    "VM records",
    "service",
    "policy",
    "ledger",
    "gateway",
  ];
  expect(checks.map((check) => check.name)).toEqual(names);
  for (const check of checks) expect(check.remedy === "").toBe(["good", "skipped"].includes(check.state));
  expect((await cli.run(["service", "status"])).stdout).toBe("not running\n");
  const bare = await cli.run(["doctor"], { env: { PATH: "/nonexistent" } });
  expect(bare.code).toBe(1);
  expect(bare.stdout).toContain(
    "MISS  qemu-img: qemu-img is not there, so disks cannot be made\n      apt-get install qemu-utils\n",
  );
  // What it asks for is what the first run installs: else it is red on every machine that was made ready.
  const installed = readFileSync(join(import.meta.dirname, "../../../tools/debian-packages.mjs"), "utf8");
  const asked = [...bare.stdout.matchAll(/apt-get install (\S+)/g)].map(([, name = ""]) => name);
  expect(asked.length).toBeGreaterThan(3);
  for (const name of asked) expect(installed).toContain(`"${name}"`);
}, 30_000);

test("doctor is green on a machine that was made ready", async () => {
  const cache = join(cli.folder, "cache");
  mkdirSync(join(cache, "images/by-recipe/one"), { recursive: true });
  const ran = await cli.run(["doctor", "--json"], { env: { CAPSEM_CACHE: cache } });
  const { checks } = JSON.parse(ran.stdout) as { checks: { name: string; state: string }[] };
  expect(checks.filter(({ state }) => state === "missing")).toEqual([]);
  expect(ran.code).toBe(0);
}, 30_000);
