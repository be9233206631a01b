import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type CliRunner, createCliRunner, endOf } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

let cli: CliRunner;

beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
}, 60_000);
afterAll(() => cli.close());

/** `count` variables of 100 000 bytes each. */
function bigEnv(count: number): string[] {
  return Array.from({ length: count }, (_, at) => ["-e", `V${at}=${"x".repeat(100_000)}`]).flat();
}

test("a run with a megabyte of variables works, as create with them does", async () => {
  const ran = await cli.run(["run", ...bigEnv(10), "echo $V0$V9 | wc -c"]);
  expect(ran).toMatchObject({ code: 0, stdout: "200001\n", stderr: "" });
});

test("a run with too many variables says the service's limit in one line, not a stack", async () => {
  const text = /^capsem: Cannot set the environment: all entries are \d+ bytes, limit 1048576\n$/;
  const ran = await cli.run(["run", ...bigEnv(11), "echo hi"]);
  expect(ran).toMatchObject({ code: 125, stdout: "", stderr: expect.stringMatching(text) });
  const json = await cli.run(["run", "--json", ...bigEnv(11), "echo hi"]);
  expect(json).toMatchObject({ code: 125, stderr: "" });
  expect(JSON.parse(json.stdout)).toMatchObject({ error: { kind: "invalid_input" } });
});

test("variables too large for one job are refused before it is sent", async () => {
  const ran = await cli.run(["exec", ...bigEnv(1), "dev", "echo hi"]);
  const text =
    /^capsem: Cannot run: the command and its variables are \d+ bytes, limit 57344: .*create -e.*\n$/;
  expect(ran).toMatchObject({ code: 125, stderr: expect.stringMatching(text) });
});

test("a command too large for one job is refused with another way to give it", async () => {
  const long = `echo ${"x".repeat(100_000)}`;
  for (const args of [
    ["run", long],
    ["exec", "dev", long],
    ["run", "--", "echo", "x".repeat(100_000)],
  ])
    expect(await cli.run(args)).toMatchObject({
      code: 125,
      stderr: expect.stringMatching(
        /^capsem: Cannot run: the command is 1000\d\d bytes, limit 49152: send it by stdin \(bash -s < script\) or copy a file in\n$/,
      ),
    });
});

test("a size over what the service gives is told in the option's units", async () => {
  expect(await cli.run(["create", "--memory", "100"])).toMatchObject({
    code: 2,
    stderr: "capsem: Cannot use --memory 100: the service gives 0.25 to 4 GiB\n",
  });
  expect(await cli.run(["run", "--cpus", "32", "true"])).toMatchObject({
    code: 125,
    stderr: "capsem: Cannot use --cpus 32: the service gives 1 to 2\n",
  });
  expect(await cli.run(["create", "--memory", "0.3"])).toMatchObject({
    code: 2,
    stderr: 'capsem: Cannot use --memory "0.3": a number of GiB from 0.25, in steps of 0.25, is needed\n',
  });
});

test("a stopped VM is told by the name that was typed, and how to start it", async () => {
  await cli.run(["create", "--name", "halted"]);
  await cli.run(["stop", "halted"]);
  expect(await cli.run(["exec", "halted", "true"])).toMatchObject({
    code: 125,
    stderr: 'capsem: Cannot work in VM "halted": it is stopped; start it: capsem start halted\n',
  });
  expect((await cli.run(["stop", "halted"])).stderr).toBe('capsem: Cannot stop VM "halted": it is stopped\n');
  const ran = await cli.run(["exec", "--json", "halted", "true"]);
  expect(JSON.parse(ran.stdout)).toMatchObject({ error: { reason: expect.stringContaining('"halted"') } });
  await cli.run(["delete", "halted"]);
});

test("a reached limit tells how to get room", async () => {
  for (let at = 0; at < 7; at += 1) await cli.run(["create"]);
  expect(await cli.run(["run", "true"])).toMatchObject({
    code: 125,
    stderr: "capsem: Cannot start a VM: 8 run, limit 8; delete or stop one: capsem list\n",
  });
  await cli.run(["purge"]);
});

test("logs without a source print all sources that have lines", async () => {
  expect(await cli.run(["logs", "dev"])).toMatchObject({
    code: 0,
    stdout: "==> guest <==\nagent is ready\nagent runs a job\n\n==> owner <==\nowner is ready\n",
    stderr: "",
  });
  expect((await cli.run(["logs", "dev", "--grep", "owner"])).stdout).toBe("owner is ready\n");
  expect(JSON.parse((await cli.run(["logs", "dev", "--json"])).stdout)).toEqual({
    lines: ["agent is ready", "agent runs a job", "owner is ready"],
    truncated: false,
  });
});

test("an empty log is said on stderr with what to try", async () => {
  expect(await cli.run(["logs", "dev", "--source", "console"])).toMatchObject({
    code: 0,
    stdout: "",
    stderr: "capsem: console is empty; try --source guest or --source owner\n",
  });
  expect((await cli.run(["logs", "dev", "--grep", "nowhere"])).stderr).toBe(
    'capsem: no line of console, guest or owner has "nowhere"\n',
  );
});

test("a log's tail that the user chose brings no hint that there is more", async () => {
  expect(await cli.run(["logs", "dev", "--source", "guest", "--tail", "1"])).toMatchObject({
    stdout: "agent runs a job\n",
    stderr: "",
  });
});

test("a job's long command is one line of the list, cut to its width", async () => {
  await cli.run(["exec", "dev", `echo one\necho '\u001b[31m' ${"x".repeat(300)} >/dev/null`]);
  const { stdout } = await cli.run(["jobs", "dev"]);
  const lines = Buffer.from(stdout, "latin1").toString("utf8").trimEnd().split("\n");
  expect(lines).toHaveLength(2);
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: none may be there.
  expect(lines[1]).not.toMatch(/[\u0000-\u001f]/);
});

const FULL = "/dev/full";
test.runIf(existsSync(FULL))(
  "a full disk behind standard output is one clear line and our exit code",
  async () => {
    const cases: [string, number][] = [
      ["version", 1],
      ["version --json", 1],
      ["list --json", 1],
      ["help", 1],
      ["completions bash", 1],
      ["info nope --json", 1],
      ["run 'echo hi'", 125],
      ["run --json true", 125],
      ["exec dev 'seq 100000'", 125],
    ];
    for (const [words, code] of cases) {
      const child = spawn(
        "bash",
        ["-c", `"$0" "$1" ${words} > ${FULL}`, process.execPath, join(cli.folder, "cli.cjs")],
        {
          env: { PATH: process.env.PATH ?? "", CAPSEM_HOME: cli.home },
          stdio: ["ignore", "pipe", "pipe"],
        },
      );
      const ran = await endOf(child);
      const text = words.startsWith("info")
        ? /^capsem: Cannot (find VM|write)/
        : /^capsem: Cannot write standard output: the disk is full \(ENOSPC\)\n$/;
      expect(ran, words).toMatchObject({ code, stderr: expect.stringMatching(text) });
    }
    expect(await cli.run(["list", "--quiet"])).toMatchObject({ stdout: expect.stringMatching(/^vm_\w+\n$/) });
  },
);

test.runIf(existsSync(FULL))("a command that says nothing does not mind", async () => {
  const child = spawn(
    "bash",
    ["-c", `"$0" "$1" run true > ${FULL}`, process.execPath, join(cli.folder, "cli.cjs")],
    {
      env: { PATH: process.env.PATH ?? "", CAPSEM_HOME: cli.home },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  expect(await endOf(child)).toMatchObject({ code: 0, stderr: "" });
});
