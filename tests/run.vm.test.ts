import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Rig, startRig, until } from "./support/rig.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startRig({ pool: 1 });
});
afterAll(() => rig.stop());

const noVmsLeft = () =>
  until("no VM is left", 10_000, async () => (await rig.client.vms.list()).length === 0);

test("run prints the kernel of a guest", async () => {
  const { code, stdout } = await rig.cli(["run", "uname -a"]);
  expect(code).toBe(0);
  expect(stdout.toString()).toMatch(/^Linux \S+ 6\.\S+cloud\S+ .*GNU\/Linux\n$/);
});

test("run computes in the guest's python", async () => {
  const { code, stdout } = await rig.cli(["run", "python3 -c 'print(6*7)'"]);
  expect([code, stdout.toString()]).toEqual([0, "42\n"]);
});

test("run ends with the command's own exit code", async () => {
  expect((await rig.cli(["run", "exit 7"])).code).toBe(7);
  await noVmsLeft();
});

test("a command that dies of a signal ends the CLI with 128 and the signal", async () => {
  expect((await rig.cli(["run", "kill -TERM $$"])).code).toBe(143);
});

test("run destroys its VM when the time limit is over, and says 124", async () => {
  const { code } = await rig.cli(["run", "--timeout", "1", "sleep 60"]);
  expect(code).toBe(124);
  await noVmsLeft();
});

test("run destroys its VM when its client is killed", async () => {
  const { child, result } = rig.startCli(["run", "echo up; sleep 60"]);
  await new Promise((seen) => child.stdout?.once("data", seen));
  expect(await rig.client.vms.list()).toHaveLength(1);
  child.kill("SIGKILL");
  await result;
  await noVmsLeft();
});

test("Ctrl-C ends the command and destroys its VM", async () => {
  const { child, result } = rig.startCli(["run", "echo up; sleep 60"]);
  await new Promise((seen) => child.stdout?.once("data", seen));
  child.kill("SIGINT");
  const { code } = await result;
  expect(code).toBe(130);
  await noVmsLeft();
});

test("pipes, heredocs, unicode and binary come through unchanged", async () => {
  const script = "cat <<'EOF' | tr a-z A-Z\ngrüße ☃ 漢字\nEOF\nprintf '\\000\\377\\n' >&2";
  const { code, stdout, stderr } = await rig.cli(["run", script]);
  expect(code).toBe(0);
  expect(stdout.toString()).toBe("GRüßE ☃ 漢字\n");
  expect(Buffer.from(stderr).length).toBeGreaterThan(2);
  const binary = Buffer.from(Array.from({ length: 70_000 }, (_, index) => (index * 7) % 256));
  const copied = await rig.cli(["run", "cat"], { input: binary });
  expect(copied.stdout.equals(binary)).toBe(true);
});

test("custom CPU and memory are visible in the guest", async () => {
  const { stdout } = await rig.cli([
    "run",
    "--cpus",
    "2",
    "--memory",
    "1",
    "nproc; awk '/MemTotal/{print int($2/1024)}' /proc/meminfo",
  ]);
  const [processors, mib] = stdout.toString().trim().split("\n").map(Number);
  expect(processors).toBe(2);
  expect(mib).toBeGreaterThan(900);
});

test("environment values reach the command, and a loader variable is refused", async () => {
  const good = await rig.cli(["run", "--env", "GREETING=höllo wörld", "echo $GREETING"]);
  expect(good.stdout.toString()).toBe("höllo wörld\n");
  const bad = await rig.cli(["run", "--env", "LD_PRELOAD=/x", "true"]);
  expect(bad.code).toBe(125);
  expect(bad.stderr).toContain("LD_PRELOAD");
});

test("a project folder goes in and its changes come home", async () => {
  const project = join(rig.home, "project");
  mkdirSync(join(project, "süb"), { recursive: true });
  writeFileSync(join(project, "a.txt"), "one\n");
  writeFileSync(join(project, "süb", "run.sh"), "#!/bin/sh\necho hi\n", { mode: 0o755 });
  const script = "echo two >> a.txt; ./süb/run.sh > out.txt; ln -s a.txt link";
  const { code, stderr } = await rig.cli(["run", "--copy", ".", "--copy-back", script], { cwd: project });
  expect([code, stderr]).toEqual([0, expect.any(String)]);
  expect(readFileSync(join(project, "a.txt"), "utf8")).toBe("one\ntwo\n");
  expect(readFileSync(join(project, "out.txt"), "utf8")).toBe("hi\n");
  expect(readFileSync(join(project, "link"), "utf8")).toBe("one\ntwo\n");
});
