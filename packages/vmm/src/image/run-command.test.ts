import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { type Command, runCommand } from "./run-command.ts";

function shell(script: string, more: Partial<Command> = {}): Promise<Awaited<ReturnType<typeof runCommand>>> {
  const env = { PATH: "/usr/bin:/bin" };
  return runCommand({ program: "sh", args: ["-c", script], env, timeoutMs: 20_000, ...more });
}

test("a program's output, end of errors and exit status come back", async () => {
  const lines: string[] = [];
  const result = await shell("echo out; echo one >&2; printf 'two\\rthree\\n' >&2; exit 3", {
    onLine: (line) => lines.push(line),
  });
  expect(result).toEqual({ code: 3, stdout: "out\n", stderrTail: "one\ntwo\rthree\n" });
  expect(lines).toEqual(["one", "two", "three"]);
});

test("a program killed by a signal counts as the shell counts it", async () => {
  expect((await shell("kill -KILL $$")).code).toBe(137);
});

test("only the given environment is passed on", async () => {
  const { stdout } = await shell("env", { env: { PATH: "/usr/bin:/bin", A: "b" } });
  expect(
    stdout
      .split("\n")
      .filter((line) => !/^(PWD|SHLVL|_|OLDPWD)=/.test(line))
      .sort(),
  ).toEqual(["", "A=b", "PATH=/usr/bin:/bin"]);
});

test("a program that is not there is a failure, not a result", async () => {
  const result = await runCommand({ program: "no-such-program", args: [], env: {}, timeoutMs: 20_000 });
  expect(result.code).not.toBe(0);
});

test("a program that does not end is stopped", async () => {
  await expect(shell("exec sleep 1000", { timeoutMs: 50 })).rejects.toMatchObject({ kind: "timeout" });
});

test("the children of a stopped program are gone with it", async () => {
  const stopper = new AbortController();
  let childPid = 0;
  const running = shell("sleep 1000 & echo $! >&2; wait", {
    signal: stopper.signal,
    onLine: (line) => {
      childPid = Number(line);
      stopper.abort();
    },
  });
  await expect(running).rejects.toMatchObject({ kind: "cancelled" });
  expect(childPid).toBeGreaterThan(1);
  expect(isAlive(childPid)).toBe(false);
});

test("an abort lets the program clean up after itself", async () => {
  const stopper = new AbortController();
  const lines: string[] = [];
  const running = shell(
    "trap 'echo cleaned >&2; exit 0' TERM; echo ready >&2; while :; do sleep 0.01; done",
    {
      signal: stopper.signal,
      onLine: (line) => {
        lines.push(line);
        if (line === "ready") stopper.abort();
      },
    },
  );
  await expect(running).rejects.toMatchObject({ kind: "cancelled" });
  // The signal reaches the whole group: a shell may also report that its sleep was terminated.
  expect(lines.filter((line) => line !== "Terminated")).toEqual(["ready", "cleaned"]);
});

test("what was aborted before it began is not started", async () => {
  await expect(shell("exit 0", { signal: AbortSignal.abort() })).rejects.toMatchObject({ kind: "cancelled" });
});

/** A zombie that nobody reaps yet is not alive. */
function isAlive(pid: number): boolean {
  const { stdout } = spawnSync("ps", ["-o", "stat=", "-p", String(pid)], { encoding: "utf8" });
  return stdout.trim() !== "" && !stdout.startsWith("Z");
}
