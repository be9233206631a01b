import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type CliRunner, createCliRunner, endOf, said } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

let cli: CliRunner;

beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev", "--env", "COLOR=blue"]);
}, 60_000);
afterAll(() => cli.close());

async function vms(): Promise<string[]> {
  const { stdout } = await cli.run(["list", "--json"]);
  return (JSON.parse(stdout) as { vms: { name: string | null; id: string }[] }).vms.map(
    (vm) => vm.name ?? vm.id,
  );
}

test("run passes output and exit code through and leaves no VM", async () => {
  const ran = await cli.run(["run", "echo out; echo err >&2; exit 7"]);
  expect(ran).toEqual({ code: 7, signal: null, stdout: "out\n", stderr: "err\n" });
  expect(await vms()).toEqual(["dev"]);
});

test("exec takes one string or words after --", async () => {
  expect((await cli.run(["exec", "dev", "echo $COLOR 'a  b'"])).stdout).toBe("blue a  b\n");
  expect((await cli.run(["exec", "dev", "--", "printf", "%s|", "a  b", "$COLOR", "--json"])).stdout).toBe(
    "a  b|$COLOR|--json|",
  );
});

test("--env K=V sets a variable, K alone takes the caller's", async () => {
  const args = ["run", "-e", "A=1=2", "--env=B", "-e", "C=", "echo $A $B [$C]"];
  expect((await cli.run(args, { env: { B: "mine" } })).stdout).toBe("1=2 mine []\n");
});

test("a closed stdin is an empty one", async () => {
  const child = spawn(
    "bash",
    ["-c", `exec "$0" "$1" run "cat; echo end" <&-`, process.execPath, join(cli.folder, "cli.cjs")],
    {
      env: { PATH: process.env.PATH ?? "", CAPSEM_HOME: cli.home },
    },
  );
  expect(await endOf(child)).toMatchObject({ code: 0, stdout: "end\n" });
});

test("exit codes are the job's, 128+n, 124, 126, 127 and 125", async () => {
  const cases: [string[], number][] = [
    [["exec", "dev", "exit 42"], 42],
    [["exec", "dev", "kill -TERM $$"], 143],
    [["exec", "--timeout", "0.2", "dev", "sleep 60"], 124],
    [["exec", "dev", "--", "no-such-command"], 127],
    [["exec", "nope", "true"], 125],
    [["exec", "dev"], 125],
    [["run", "--memory", "0.3", "true"], 125],
    [["exec", "--env", "UNSET_HERE", "dev", "true"], 125],
    [["run", "ls", "-l"], 125],
    [["info", "nope"], 1],
    [["info"], 2],
    [["create", "--name", "dev"], 1],
    [["create", "--name", "No"], 2],
    [["frobnicate"], 2],
  ];
  const codes = await Promise.all(cases.map(async ([args]) => (await cli.run(args)).code));
  expect(codes).toEqual(cases.map(([, code]) => code));
});

test("a timed out run says so, answers 124 and leaves no VM", async () => {
  const ran = await cli.run(["run", "-t", "0.2", "sleep 60"]);
  expect(ran).toMatchObject({
    code: 124,
    stderr: "capsem: the command was killed at its time limit of 0.2 s\n",
  });
  expect(await vms()).toEqual(["dev"]);
});

test("stdin is forwarded with every byte, and closed at its end", async () => {
  const input = Buffer.from(Array.from({ length: 1_000_000 }, (_, at) => (at * 7) & 255));
  const { stdout } = await cli.run(["run", "sha256sum | cut -d' ' -f1"], { input });
  expect(stdout).toBe(`${createHash("sha256").update(input).digest("hex")}\n`);
});

test("binary output comes through unchanged", async () => {
  const ran = await cli.run(["exec", "dev", "printf '\\000\\377\\200a'; head -c 300000 /dev/zero"]);
  expect(ran.stdout.slice(0, 4)).toBe("\0\xff\x80a");
  expect(ran.stdout).toHaveLength(300_004);
});

test("a command that reads no stdin ends although ours stays open", async () => {
  const child = cli.start(["run", "echo done"]);
  expect((await endOf(child)).stdout).toBe("done\n");
});

test("--json gives one object with streams as text or base64, errors included", async () => {
  const ran = await cli.run(["run", "--json", "echo hi; printf '\\377' >&2; exit 3"]);
  expect(ran.code).toBe(3);
  expect(JSON.parse(ran.stdout)).toMatchObject({
    exit_code: 3,
    stdout: { encoding: "utf8", data: "hi\n", truncated: false },
    stderr: { encoding: "base64", data: "/w==", truncated: false },
  });
  const failed = await cli.run(["exec", "nope", "--json", "true"]);
  expect(JSON.parse(failed.stdout)).toMatchObject({
    error: { kind: "vm_not_found", status: 404, retryable: false },
  });
});

test("the first Ctrl-C reaches the job, which may end in its own way", async () => {
  const child = cli.start([
    "run",
    "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done",
  ]);
  const end = endOf(child);
  await said(child, "stdout", "ready");
  child.kill("SIGINT");
  expect(await end).toMatchObject({ code: 9, stdout: "ready\ncaught\n" });
  expect(await vms()).toEqual(["dev"]);
});

test("the second Ctrl-C, SIGTERM and SIGHUP end a run at once and destroy its VM", async () => {
  for (const [signals, code] of [
    [["SIGINT", "SIGINT"], 130],
    [["SIGTERM"], 143],
    [["SIGHUP"], 129],
  ] as const) {
    const child = cli.start(["run", "trap '' INT; echo ready; while :; do sleep 0.05; done"]);
    const end = endOf(child);
    await said(child, "stdout", "ready");
    for (const signal of signals) {
      child.kill(signal);
      // Two equal signals that are pending at once are one.
      await new Promise((resolve) => setImmediate(resolve));
    }
    if (signals.length === 2) await repeat(() => child.kill("SIGINT"), end);
    expect((await end).code).toBe(code);
    expect(await vms()).toEqual(["dev"]);
  }
}, 60_000);

test("a killed CLI takes the VM of its run along", async () => {
  const child = cli.start(["run", "echo ready; sleep 60"]);
  const end = endOf(child);
  await said(child, "stdout", "ready");
  child.kill("SIGKILL");
  await end;
  await expect.poll(vms, { timeout: 10_000 }).toEqual(["dev"]);
});

test("exec kills its job when it is told to end", async () => {
  const child = cli.start(["exec", "dev", "trap '' TERM INT; echo ready; while :; do sleep 0.05; done"]);
  const end = endOf(child);
  await said(child, "stdout", "ready");
  child.kill("SIGTERM");
  expect((await end).code).toBe(143);
  const { stdout } = await cli.run(["jobs", "dev"]);
  expect(stdout).not.toContain("running");
});

test("a reader that goes away ends run and exec quietly, and their jobs", async () => {
  for (const args of [
    ["run", "yes"],
    ["exec", "dev", "yes"],
  ]) {
    const child = cli.start(args);
    child.stderr?.on("data", (part: Buffer) => expect.fail(part.toString()));
    const code = new Promise((resolve) => child.once("exit", resolve));
    child.stdout?.once("data", () => child.stdout?.destroy());
    expect(await code).toBe(141);
  }
  expect(await vms()).toEqual(["dev"]);
  expect((await cli.run(["jobs", "list", "dev"])).stdout).not.toContain("running");
}, 60_000);

test("jobs are listed, their output is read again, and they are signalled", async () => {
  const { stdout } = await cli.run(["exec", "dev", "--json", "echo one; echo two >&2"]);
  const { job_id: id } = JSON.parse(stdout) as { job_id: string };
  expect(await cli.run(["jobs", "output", "dev", id])).toMatchObject({
    code: 0,
    stdout: "one\n",
    stderr: "two\n",
  });
  const child = cli.start(["exec", "dev", "echo ready; sleep 60"]);
  const end = endOf(child);
  await said(child, "stdout", "ready");
  const jobs = JSON.parse((await cli.run(["jobs", "dev", "--json"])).stdout) as {
    jobs: { id: string; state: string }[];
  };
  const running = jobs.jobs.find((job) => job.state === "running")?.id ?? "";
  expect((await cli.run(["jobs", "signal", "dev", running, "term"])).code).toBe(0);
  expect((await end).code).toBe(143);
});

async function repeat(act: () => void, until: Promise<unknown>): Promise<void> {
  const timer = setInterval(act, 20);
  await until;
  clearInterval(timer);
}
