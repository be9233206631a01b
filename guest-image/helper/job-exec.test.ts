import { existsSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Rig, skipReason } from "./rig.ts";

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: exec tests of capsem-helper: ${reason}`);

describe.skipIf(reason !== undefined)("exec", () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.start();
  }, 60_000);
  afterAll(() => rig.stop());

  const endings: readonly [string, string][] = [
    ["exit 0", "exit 0"],
    ["exit 7", "exit 7"],
    ["exit 255", "exit 255"],
    ["kill -9 $$", "signal 9"],
    ["kill -TERM $$", "signal 15"],
  ];
  for (const [script, last] of endings) {
    test(`a program that runs "${script}" is reported as "${last}"`, async () => {
      const result = await rig.sh(script);
      expect(result.lines[0]).toMatch(/^started \d+$/);
      expect(result.lines.slice(1)).toEqual([last]);
      expect(result.code).toBe(0);
    });
  }

  /** The turn of the event loop is over only after the helper's last word: as on a busy machine. */
  test("a line that comes after the program's end does not take its report away", async () => {
    const job = rig.job({ op: "exec", argv: ["sh", "-c", "read line; exit 5"], env: ["PATH=/usr/bin"] });
    expect(await job.line()).toMatch(/^started \d+$/);
    job.stdin.write("go\n");
    const isAtItsEnd = () => !existsSync(`/proc/${job.process.pid}/fd/0`);
    for (const deadline = Date.now() + 10_000; !isAtItsEnd() && Date.now() < deadline; );
    expect(isAtItsEnd()).toBe(true);
    job.control.write("kill 9\n");
    expect(await job.line()).toBe("exit 5");
    expect((await job.result()).code).toBe(0);
  });

  test("stdin, stdout and stderr carry bytes until their ends", async () => {
    const job = rig.job({ op: "exec", argv: ["sh", "-c", "cat; echo oops >&2"], env: ["PATH=/usr/bin"] });
    const bytes = "x".repeat(300_000);
    job.stdin.end(bytes);
    const result = await job.result();
    expect(result.stdout.length).toBe(bytes.length);
    expect(result.stderr).toBe("oops\n");
    expect(result.lines[1]).toBe("exit 0");
  });

  test("the program is the user with its groups, in its directory, with the given environment only", async () => {
    const result = await rig.sh("id -u; id -g; id -G; pwd; env | sort; umask; ulimit -n; nice", {
      groups: [27, 44],
      env: ["A=b=c", "PATH=/usr/bin"],
    });
    const lines = result.stdout.trim().split("\n");
    expect(lines.slice(0, 4)).toEqual(["1000", "1000", "1000 27 44", "/workspace"]);
    expect(lines.filter((line) => line.includes("="))).toEqual(["A=b=c", "PATH=/usr/bin", "PWD=/workspace"]);
    expect(lines.slice(-3)).toEqual(["0022", "1024", "0"]);
  });

  test("it has only descriptors 0, 1 and 2, an empty mask, and leads its session", async () => {
    const result = await rig.sh(
      "ls /proc/$$/fd | tr '\\n' ' '; grep -E '^Sig(Blk|Ign)' /proc/self/status; cat /proc/self/oom_score_adj; ps -o sid= -p $$; echo $$",
      { env: ["PATH=/usr/bin"] },
    );
    const lines = result.stdout.trim().split("\n");
    expect(lines[0]).toMatch(/^0 1 2 (\d+ )?SigBlk:\t0{16}$/);
    expect(lines[1]).toBe("SigIgn:\t0000000000000000");
    expect(lines[2]).toBe("500");
    expect(lines[3]?.trim()).toBe(lines[4]);
  });

  test("its output can be opened again through /dev/stdout", async () => {
    expect((await rig.sh("echo again > /dev/stdout")).stdout).toBe("again\n");
  });

  test("it runs in the job's cgroup, which it sees as the root of the tree", async () => {
    const result = await rig.sh(
      "grep ^0: /proc/self/cgroup; sleep 0; cat /sys/fs/cgroup/job/cgroup.procs | wc -l",
    );
    const [own, count] = result.stdout.trim().split("\n");
    expect(own).toBe("0::/");
    expect(Number(count)).toBeGreaterThan(0);
  });

  const refusals: readonly [string, object, string][] = [
    ["a missing program", { argv: ["nothing-here"] }, "error exec ENOENT"],
    ["a program that may not be executed", { argv: ["/etc/passwd"] }, "error exec EACCES"],
    ["a directory as program", { argv: ["/usr"] }, "error exec EACCES"],
    ["a missing working directory", { argv: ["true"], cwd: "/nowhere" }, "error cwd ENOENT"],
    ["a working directory of another user", { argv: ["true"], cwd: "/workspace/closed" }, "error cwd EACCES"],
    ["a workload that is gone", { argv: ["true"], initPid: 4194303 }, "error namespace ESRCH"],
    ["our own namespaces", { argv: ["true"], initPid: process.pid }, "error namespace EPERM"],
    ["a missing cgroup", { argv: ["true"], cgroup: "/sys/fs/cgroup/none" }, "error cgroup ENOENT"],
  ];
  for (const [what, request, expected] of refusals) {
    test(`${what} answers "${expected}"`, async () => {
      await rig.sh("mkdir -m 700 -p /workspace/closed", { uid: 0, gid: 0 });
      const result = await rig.exec(["true"], request);
      expect(result.lines.length).toBe(1);
      expect(result.lines[0]).toContain(`${expected} `);
      expect(result.code).toBe(1);
    });
  }

  test("a signal goes to the whole process group", async () => {
    const job = rig.job({
      op: "exec",
      argv: ["sh", "-c", "sleep 1000 & echo $!; wait"],
      env: ["PATH=/usr/bin"],
    });
    const pid = (await job.seen("\n")).trim();
    job.control.write("kill 15\n");
    const result = await job.result();
    // The group's members die one after the other: one that is still on its way out holds the output then.
    expect(result.lines[1]).toMatch(/^signal 15( held)?$/);
    expect((await rig.sh(`kill -0 ${pid}`)).lines[1]).toBe("exit 1");
  });

  test("a signal sent with the request waits for the program", async () => {
    const job = rig.job({ op: "exec", argv: ["sleep", "1000"], env: ["PATH=/usr/bin"] });
    job.control.write("kill 9\n");
    expect((await job.result()).lines[1]).toBe("signal 9");
  });

  test("a background process that keeps the output does not delay the end", async () => {
    const job = rig.job({ op: "exec", argv: ["sh", "-c", "sleep 1000 & echo $!"], env: ["PATH=/usr/bin"] });
    expect(await job.line()).toMatch(/^started/);
    expect(await job.line()).toBe("exit 0 held");
    const pid = (await job.seen("\n")).trim();
    expect((await rig.sh(`kill -0 ${pid} && kill -9 ${pid}`)).lines[1]).toBe("exit 0");
    expect((await job.result()).code).toBe(0);
  });

  test("a held job lets go when the agent closes fd 3, and the background process lives on", async () => {
    const job = rig.job({ op: "exec", argv: ["sh", "-c", "sleep 1000 & echo $!"], env: ["PATH=/usr/bin"] });
    await job.line();
    await job.line();
    const pid = (await job.seen("\n")).trim();
    job.control.destroy();
    expect((await job.result()).code).toBe(0);
    expect((await rig.sh(`kill -9 ${pid}`)).lines[1]).toBe("exit 0");
  });

  test("a background process without the output is not held", async () => {
    const result = await rig.sh("exec >/dev/null 2>&1; sleep 0.2 & exit 3");
    expect(result.lines[1]).toBe("exit 3");
  });

  test("everything written before the end arrives before the last line", async () => {
    const result = await rig.sh("head -c 3000000 /dev/zero; head -c 60000 /dev/zero >&2");
    expect([result.stdout.length, result.stderr.length]).toEqual([3_000_000, 60_000]);
  });

  test("the end of fd 3 kills the process group", async () => {
    const job = rig.job({
      op: "exec",
      argv: ["sh", "-c", "sleep 1000 & echo up $!; wait"],
      env: ["PATH=/usr/bin"],
    });
    const pid = /up (\d+)/.exec(await job.seen("\n"))?.[1];
    job.control.destroy();
    expect((await job.result()).code).toBe(1);
    expect((await rig.sh(`kill -0 ${pid}`)).lines[1]).toBe("exit 1");
  });

  test("the program dies with a zygote that was killed", async () => {
    const job = rig.job({
      op: "exec",
      argv: ["sh", "-c", "echo $$; exec sleep 1000"],
      env: ["PATH=/usr/bin"],
    });
    const pid = (await job.seen("\n")).trim();
    job.process.kill("SIGKILL");
    await job.result();
    expect(
      (
        await rig.sh(
          `for i in $(seq 200); do kill -0 ${pid} && ! grep -q ^State:.Z /proc/${pid}/status || exit 4; sleep 0.01; done`,
        )
      ).lines[1],
    ).toBe("exit 4");
  });

  test("stdin after the program closed it is refused, and the program goes on", async () => {
    const job = rig.job({
      op: "exec",
      argv: ["sh", "-c", "exec <&-; echo shut; sleep 0.1; echo on"],
      env: ["PATH=/usr/bin"],
    });
    await job.seen("shut");
    const refused = new Promise((resolve) => job.stdin.on("error", resolve));
    job.stdin.write("x".repeat(1_000_000));
    await refused;
    const result = await job.result();
    expect(result.stdout).toBe("shut\non\n");
    expect(result.lines[1]).toBe("exit 0");
  });

  for (const line of [
    "kill 0\n",
    "kill 65\n",
    "kill x\n",
    "nonsense\n",
    "kill 9",
    `${"a".repeat(200)}`,
    "resize 0 1\n",
  ]) {
    test(`the control line ${JSON.stringify(line.slice(0, 12))} ends the job when it is malformed`, async () => {
      const job = rig.job({ op: "exec", argv: ["sleep", "1000"], env: ["PATH=/usr/bin"] });
      await job.line();
      job.control.end(line);
      const result = await job.result();
      expect(result.code).toBe(1);
    });
  }

  test("a zygote without a request ends quietly", async () => {
    const job = rig.zygote();
    job.control.end();
    expect(await job.result()).toMatchObject({ code: 0, lines: [] });
  });
});
