import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Job, Rig, skipReason } from "./rig.ts";

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: terminal tests of capsem-helper: ${reason}`);

describe.skipIf(reason !== undefined)("terminal", () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.start();
  }, 60_000);
  afterAll(() => rig.stop());

  function terminal(argv: readonly string[], size?: { cols: number; rows: number }): Job {
    return rig.job({ op: "exec", argv, env: ["PATH=/usr/bin", "TERM=xterm"], flags: ["terminal"], ...size });
  }

  test("the size is there before the program starts", async () => {
    const result = await terminal(["stty", "size"], { cols: 132, rows: 43 }).result();
    expect(result.stdout).toBe("43 132\r\n");
    expect(result.lines[1]).toBe("exit 0");
  });

  test("without a size it is 80 by 24", async () => {
    expect((await terminal(["stty", "size"]).result()).stdout).toBe("24 80\r\n");
  });

  test("it is the controlling terminal of the user, with stderr on it", async () => {
    const result = await terminal([
      "sh",
      "-c",
      "tty; stat -c '%u %a' $(tty); echo e >&2; echo c > /dev/tty",
    ]).result();
    expect(result.stdout).toMatch(/^\/dev\/pts\/\d+\r\n1000 620\r\ne\r\nc\r\n$/);
    expect(result.stderr).toBe("");
  });

  test("control-C interrupts the foreground program", async () => {
    const job = terminal([
      "sh",
      "-c",
      "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.05; done",
    ]);
    await job.seen("up");
    job.stdin.write("\x03");
    const result = await job.result();
    expect(result.stdout).toContain("caught");
    expect(result.lines[1]).toBe("exit 9");
  });

  test("a resize reaches the program as a signal and a new size", async () => {
    const job = terminal(["sh", "-c", "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done"]);
    await job.seen("up");
    job.control.write("resize 90 31\n");
    expect((await job.result()).stdout).toContain("31 90");
  });

  test("the end of stdin is an end of file for the program, sent once", async () => {
    const job = terminal(["sh", "-c", "cat; echo after; sleep 0.05; stty -a | grep -c eof"]);
    job.stdin.end("typed\n");
    const result = await job.result();
    expect(result.stdout.replaceAll("\r", "")).toMatch(/typed\ntyped\nafter\n1\n$/);
    expect(result.lines[1]).toBe("exit 0");
  });

  test("all of a large output arrives before the end is reported", async () => {
    const result = await terminal(["sh", "-c", "stty -opost; seq 1 50000"]).result();
    expect(result.stdout.split("\n").length).toBe(50_001);
    expect(result.lines[1]).toBe("exit 0");
  });

  test("a background process does not delay the end", async () => {
    const result = await terminal(["sh", "-c", "setsid sleep 1000 & echo $!; exit 5"]).result();
    expect(result.lines[1]).toBe("exit 5");
  });

  test("the end of fd 3 kills the program", async () => {
    const job = terminal(["sh", "-c", "trap '' HUP TERM INT; echo up; while :; do sleep 0.05; done"]);
    await job.seen("up");
    job.control.destroy();
    expect((await job.result()).code).toBe(1);
  });

  test("a size without the terminal flag is refused", async () => {
    const result = await rig.exec(["true"], { cols: 80, rows: 24 });
    expect(result.lines).toEqual(["error request EINVAL Invalid argument"]);
    expect(result.code).toBe(2);
  });

  test("a ptmx that the workload replaced is not followed", async () => {
    const result = await rig.sh("mkdir -p /tmp/pts && rm -rf /dev/pts/ptmx; mv /dev/pts /dev/x", {
      uid: 0,
      gid: 0,
    });
    expect(result.lines[1]).not.toBe("exit 0");
    expect((await terminal(["true"]).result()).lines[1]).toBe("exit 0");
  });
});
