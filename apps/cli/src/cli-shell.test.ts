import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type CliRunner, createCliRunner, endOf, said } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

let cli: CliRunner;
const hasScript = hasProgram("script");

beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
}, 60_000);
afterAll(() => cli.close());

/** On a terminal of its own, whose mode is written down before and after. */
function onTerminal(args: string) {
  const lines = [
    "stty cols 101 rows 37",
    `stty -a > ${cli.folder}/before`,
    `${process.execPath} ${cli.folder}/cli.cjs ${args}`,
    'echo "code $?"',
    `stty -a > ${cli.folder}/after`,
  ];
  const child = spawn("script", ["-qefc", lines.join("\n"), "/dev/null"], {
    env: { PATH: process.env.PATH ?? "", CAPSEM_HOME: cli.home, SHELL: "/bin/bash", TERM: "xterm" },
  });
  const modes = () => ["before", "after"].map((name) => readFileSync(join(cli.folder, name), "utf8"));
  return { child, end: endOf(child), modes };
}

test.skipIf(!hasScript)(
  "a shell has the terminal's size from its first byte, and gives the terminal back",
  async () => {
    const { child, end, modes } = onTerminal(
      "shell dev 'echo ready $FIXTURE_SIZE $TERM; read line; echo got $line; exit 6'",
    );
    await said(child, "stdout", "ready 101x37 xterm");
    child.stdin?.write("hi\n");
    const { stdout } = await end;
    expect(stdout).toContain("got hi");
    expect(stdout).toContain("code 6");
    const [before, after] = modes();
    expect(after).toBe(before);
  },
);

test.skipIf(!hasScript)("asks are answered with a key, and the terminal is given back", async () => {
  await cli.run(["rules", "put", "held", "--match", 'process.command.contains("held")', "--action", "ask"]);
  const { child, end, modes } = onTerminal("asks watch");
  await said(child, "stdout", "waiting for asks");
  const held = cli.run(["exec", "dev", "echo held"]);
  await said(child, "stdout", "y yes, this once");
  // A key counts a moment after its ask came, so that none answers what nobody has read.
  const pressing = setInterval(() => child.stdin?.write("y"), 100);
  expect(await held).toMatchObject({ code: 0, stdout: "held\n" });
  clearInterval(pressing);
  child.stdin?.write("q");
  const { stdout } = await end;
  expect(stdout).toContain("\x1b[1m");
  expect(stdout).toMatch(/approved [a-z2-7]{6}, echo held in dev, this once/);
  expect(stdout).toContain("code 0");
  const [before, after] = modes();
  expect(after).toBe(before);
});

test.skipIf(!hasScript)("a secret that is typed is not shown", async () => {
  const { child, end, modes } = onTerminal("credentials inject typed --host example.com");
  await said(child, "stdout", "it is not shown");
  child.stdin?.write("unseen-value\r");
  const { stdout } = await end;
  expect(stdout).toContain("credential:blake3:");
  expect(stdout).not.toContain("unseen-value");
  const [before, after] = modes();
  expect(after).toBe(before);
});

test.skipIf(!hasScript)("Ctrl-C is a byte for the guest, not the end of the shell", async () => {
  const { child, end, modes } = onTerminal(`shell dev 'echo ready; head -c 1 | od -An -tx1; exit 0'`);
  await said(child, "stdout", "ready");
  child.stdin?.write("\x03");
  const { stdout } = await end;
  expect(stdout).toContain("03");
  expect(stdout).toContain("code 0");
  const [before, after] = modes();
  expect(after).toBe(before);
});

test.skipIf(!hasScript)(
  "a shell that is told to end gives the terminal back, and its job is found again",
  async () => {
    const { child, end, modes } = onTerminal("shell dev 'echo ready; read line; echo again $line; exit 0'");
    await said(child, "stdout", "ready");
    const pids = execFileSync("pgrep", ["-f", `^${process.execPath} ${cli.folder}/cli.cjs shell`])
      .toString()
      .trim()
      .split("\n");
    for (const pid of pids) process.kill(Number(pid), "SIGTERM");
    const { stdout } = await end;
    const job = /--job (job_[a-z2-7]{16})/.exec(stdout)?.[1] ?? "";
    expect(modes()[1]).toBe(modes()[0]);
    const again = onTerminal(`shell dev --job ${job}`);
    await said(again.child, "stdout", "ready");
    again.child.stdin?.write("x\n");
    const { stdout: second } = await again.end;
    expect(second).toContain("again x");
  },
);

test("without a terminal a shell is refused", async () => {
  expect(await cli.run(["shell", "dev"])).toMatchObject({
    code: 125,
    stderr: expect.stringContaining("use exec"),
  });
});

function hasProgram(name: string): boolean {
  try {
    execFileSync("which", [name], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

test.skipIf(!hasScript)(
  "purge --all asks on a terminal before it deletes kept VMs, unless told --yes",
  async () => {
    const list = async () => (await cli.run(["list", "--names"])).stdout;
    await cli.run(["create", "--name", "precious"]);
    const refused = onTerminal("purge --all");
    await said(refused.child, "stdout", "precious? [y/N]");
    refused.child.stdin?.write("\n");
    expect((await refused.end).stdout).toMatch(/nothing was deleted\s+code 1/);
    expect(await list()).toContain("precious");
    const agreed = onTerminal("purge --all");
    await said(agreed.child, "stdout", "precious? [y/N]");
    agreed.child.stdin?.write("y\n");
    expect((await agreed.end).stdout).toContain("code 0");
    expect(await list()).not.toContain("precious");
    await cli.run(["create", "--name", "precious"]);
    expect((await onTerminal("purge --all --yes").end).stdout).not.toContain("[y/N]");
    expect(await list()).not.toContain("precious");
    // Where nobody could answer it goes on as scripts expect.
    await cli.run(["create", "--name", "precious"]);
    expect((await cli.run(["purge", "--all"])).code).toBe(0);
    expect(await list()).not.toContain("precious");
  },
);
