import { execFileSync, spawn } from "node:child_process";
import {
  chownSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { vmRecords } from "./doctor/vm-records.ts";
import { checkHome, readSmallFile } from "./own-home.ts";
import { type CliRunner, createCliRunner } from "./testing/cli-runner.ts";

vi.setConfig({ testTimeout: 60_000 });

/** Only root can make what another user would. */
const isRoot = process.getuid?.() === 0;
const STRANGER = 4_242;
let cli: CliRunner;
let home = "";
beforeAll(async () => {
  cli = await createCliRunner();
}, 60_000);
beforeEach(() => {
  home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-own-home-")));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));
afterAll(() => cli.close());

test("a home that is not there is nobody's", () => {
  expect(() => checkHome(join(home, "none"))).not.toThrow();
});

test.runIf(isRoot)("a process that another user's run folder names is not ended by us", async () => {
  const run = join(home, "run");
  mkdirSync(run);
  const victim = spawn("sleep", ["600"], { stdio: "ignore" });
  const stop = () => cli.run(["service", "stop", "--force"], { env: { CAPSEM_HOME: home } });
  try {
    writeFileSync(join(run, "service.pid"), `${victim.pid}\n`);
    chownSync(run, STRANGER, STRANGER);
    const ran = await stop();
    expect(ran.code).toBe(1);
    expect(ran.stderr).toContain(`Cannot use "${run}": it belongs to user ${STRANGER}, and we are user 0`);
    expect(victim.exitCode ?? victim.signalCode).toBe(null);
    chownSync(run, 0, 0);
    expect((await stop()).stdout).toContain(`stopped, pid ${victim.pid}`);
  } finally {
    victim.kill("SIGKILL");
  }
});

test.runIf(isRoot)("no command talks to the service of a home that another user made", async () => {
  chownSync(home, STRANGER, STRANGER);
  for (const words of [["list"], ["status"], ["service", "start"], ["gateway", "status"]]) {
    const ran = await cli.run(words, { env: { CAPSEM_HOME: home } });
    expect(ran.stderr, words.join(" ")).toContain(`it belongs to user ${STRANGER}`);
  }
  expect((await cli.run(["doctor"], { env: { CAPSEM_HOME: home } })).stdout).toContain(
    "MISS  home: Cannot use",
  );
});

test("the service's first words are not written through a link", async () => {
  mkdirSync(join(home, "logs"));
  const victim = join(home, "victim");
  writeFileSync(victim, "keep");
  symlinkSync(victim, join(home, "logs", "service.out"));
  const ran = await cli.run(["service", "start"], { env: { CAPSEM_HOME: home } });
  expect(ran.code).toBe(1);
  expect(ran.stderr).toContain("a link is in the way");
  expect(readFileSync(victim, "utf8")).toBe("keep");
});

test("a pipe or a link in a small file's place holds nobody up", () => {
  const folder = join(home, "vms", "vm_aaaaaaaaaaaaaaaa");
  mkdirSync(folder, { recursive: true });
  execFileSync("mkfifo", [join(folder, "vm.json")]);
  expect(() => readSmallFile(join(folder, "vm.json"))).toThrow("no file");
  expect(vmRecords({ home } as Parameters<typeof vmRecords>[0])).toMatchObject({ state: "warning" });
  symlinkSync("/etc/passwd", join(home, "link"));
  expect(() => readSmallFile(join(home, "link"))).toThrow("ELOOP");
});
