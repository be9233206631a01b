import { encodeMessagePack, PORTS, readJobChunks, writeJobChunks } from "@capsem/wire";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { collect, readAll, settles, TestHost } from "./test-host.ts";
import { AgentRig, skipReason } from "./test-rig.ts";

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: the jobs of the guest agent: ${reason}`);

describe.skipIf(reason !== undefined)("the jobs of the guest agent", { timeout: 60_000 }, () => {
  const rig = new AgentRig();
  let host: TestHost;

  beforeAll(async () => {
    await rig.start();
    host = new TestHost(await rig.accept("control"), await rig.accept("bulk"));
    const ready = await host.startGeneration();
    expect(ready.agent_instance).toBe(host.agentInstance);
    expect(await host.ask("mount_disk", {})).toMatchObject({ name: "ack" });
  }, 120_000);
  afterAll(() => rig.stop(), 60_000);

  describe("jobs", () => {
    test("a command's output and exit code come through", async () => {
      const { stdout, stderr, done } = await host.run({ command: "echo out; echo err >&2; exit 7" });
      expect(stdout.toString()).toBe("out\n");
      expect(stderr.toString()).toBe("err\n");
      expect(done).toMatchObject({ exit_code: 7, timed_out: false, stdout_bytes: 4, stderr_bytes: 4 });
    });

    test("a job is the user in the workspace with its groups and our environment", async () => {
      const { stdout } = await host.run({
        command: "id -u; id -G; pwd; env | sort | grep -v -e ^_= -e ^SHLVL=",
      });
      expect(stdout.toString().trim().split("\n")).toEqual([
        "1000",
        "1000 2000",
        "/workspace",
        "HOME=/home/user",
        "LANG=C.UTF-8",
        "LOGNAME=user",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PWD=/workspace",
        "SHELL=/bin/bash",
        "USER=user",
      ]);
    });

    test("the agent's time begins before a job's process and ends after it, inside the host's", async () => {
      const started = performance.now();
      const { done } = await host.run({ command: "sleep 0.2" });
      const wholeMs = performance.now() - started;
      expect(done.agent_us / 1000).toBeGreaterThan(200);
      expect(done.agent_us / 1000).toBeLessThan(wholeMs);
    });

    test("an argument vector is run as it is, as root, elsewhere", async () => {
      const job = {
        argv: ["/bin/sh", "-c", 'id -u; pwd; echo "$1"', "x", "a b\n$c"],
        user: "root",
        cwd: "/tmp",
      };
      expect((await host.run(job)).stdout.toString()).toBe("0\n/tmp\na b\n$c\n");
    });

    test("stdin is fed, closed, and carries any bytes", async () => {
      const bytes = Buffer.from(Array.from({ length: 400_000 }, (_, i) => (i * 7) & 255));
      const { stdout, done } = await host.run({ command: "cat" }, bytes);
      expect(stdout.equals(bytes)).toBe(true);
      expect(done.stdout_bytes).toBe(bytes.length);
    });

    test("without stdin a program reads the end at once", async () => {
      expect((await host.run({ command: "wc -c" })).stdout.toString().trim()).toBe("0");
    });

    test("stdin that nobody reads holds nothing up", async () => {
      const { done } = await host.run({ command: "exit 3" }, Buffer.alloc(2_000_000));
      expect(done.exit_code).toBe(3);
    });

    test("a program can open its output again", async () => {
      const { stdout, stderr } = await host.run({ command: "echo a >/dev/stdout; echo b >/dev/stderr" });
      expect([stdout.toString(), stderr.toString()]).toEqual(["a\n", "b\n"]);
    });

    const refusals = [
      ["a missing program", { argv: ["nothing-here"] }, "command_not_found"],
      ["a program that may not run", { argv: ["/etc/passwd"] }, "command_not_executable"],
      ["a missing directory", { command: "true", cwd: "/nowhere" }, "file_not_found"],
      ["a file as directory", { command: "true", cwd: "/etc/passwd" }, "file_wrong_type"],
      ["an unknown user", { command: "true", user: "nobody-here" }, "invalid_input"],
      ["a command and a vector", { command: "true", argv: ["true"] }, "invalid_input"],
      ["neither", {}, "invalid_input"],
      ["a NUL in an argument", { argv: ["echo", "a\0b"] }, "invalid_input"],
      ["a refused name", { command: "true", env: ["LD_PRELOAD=x"] }, "invalid_input"],
      ["an entry without a name", { command: "true", env: ["=x"] }, "invalid_input"],
    ] as const;
    test.each(refusals)("%s is refused with its kind", async (_, start, kind) => {
      await expect(
        host.run({
          ...start,
          ...("env" in start ? { env: [...start.env] } : {}),
          ...("argv" in start ? { argv: [...start.argv] } : {}),
        } as object),
      ).rejects.toThrow(new RegExp(`^${kind}: Cannot `));
    });

    test("the environment of the VM is below that of the job", async () => {
      const { answer, stream, id } = host.transfer("set_env", { size: envBytes.length });
      await stream.write(envBytes);
      stream.end();
      expect(await answer).toEqual({ name: "ack", body: { id } });
      const { stdout } = await host.run({ command: 'echo "$A|$B|$HOME|$U"', env: ["B=job"] });
      expect(stdout.toString()).toBe("vm|job|/elsewhere|žlutý\n");
    });

    test("a bad environment changes nothing", async () => {
      const bytes = encodeMessagePack(["A=x", "IFS=x"]);
      const { answer, stream } = host.transfer("set_env", { size: bytes.length });
      await stream.write(bytes);
      stream.end();
      expect(await answer).toMatchObject({ name: "error", body: { kind: "invalid_input" } });
      expect((await host.run({ command: "echo $A" })).stdout.toString()).toBe("vm\n");
    });

    test("no helper stays: not of a job that ended, and of one that is held not longer than that", async () => {
      const warm = 2;
      const stay = (count: number) => settles(async () => rig.zygotePids().length === count);
      for (let count = 0; count < 3; count++) await host.run({ command: "true" });
      const job = "job_held";
      await host.run({ job, command: "sleep 1000 & echo on" });
      expect(await stay(warm + 1)).toBe(true);
      await host.ask("job_signal", { job, signal: 9, tree: true });
      expect(await stay(warm)).toBe(true);
    });

    test("a time limit kills the whole tree", async () => {
      const { done } = await host.run({ command: "setsid sleep 1000 & sleep 1000", time_left_ms: 300 });
      expect(done).toMatchObject({ signal: 9, timed_out: true });
    });

    test("signals reach the process group", async () => {
      const job = "job_signalled";
      const stream = host.bulk.open(PORTS.job.number, job);
      const done = host.next((m) => m.name === "job_done" && m.body.job === job);
      await host.ask("job_start", {
        job,
        command: "trap 'echo got; exit 5' TERM; echo up; while :; do sleep 0.05; done",
        stdin: false,
      });
      await stream.read();
      expect(await host.ask("job_signal", { job, signal: 15, tree: false })).toMatchObject({ name: "ack" });
      expect(await done).toMatchObject({ body: { exit_code: 5, stdout_bytes: 7 } });
      stream.reset("cancelled");
    });

    test("a signal for a job that does not run is refused", async () => {
      const answer = await host.ask("job_signal", { job: "job_unknown", signal: 9, tree: true });
      expect(answer).toMatchObject({ name: "error", body: { kind: "job_not_found" } });
      expect(await host.ask("job_signal", { job: "job_unknown", signal: 15, tree: true })).toMatchObject({
        name: "error",
        body: { kind: "invalid_input" },
      });
    });

    test("a job ends with its own process, and its background child goes on until the tree is killed", async () => {
      const job = "job_background";
      const { stdout, done } = await host.run({
        job,
        command: "(while :; do echo more; sleep 0.01; done) & echo first",
      });
      expect(done.exit_code).toBe(0);
      expect(stdout.toString()).toContain("first\n");
      const count = "pgrep -c -f 'echo more' || true";
      expect(Number((await host.run({ command: count })).stdout)).toBeGreaterThan(1);
      await host.ask("job_signal", { job, signal: 9, tree: true });
      expect(await settles(async () => Number((await host.run({ command: count })).stdout) <= 1)).toBe(true);
    });

    test("64 at once all end, and pings are answered meanwhile", async () => {
      const jobs = Array.from({ length: 64 }, (_, i) => host.run({ command: `echo ${i}` }));
      const pong = await host.ping(1);
      expect(Math.abs(pong.clock_ms - Date.now())).toBeLessThan(30_000);
      const results = await Promise.all(jobs);
      expect(results.map(({ stdout }) => Number(stdout.toString()))).toEqual(
        Array.from({ length: 64 }, (_, i) => i),
      );
    });

    test("a stream that comes after its job has ended is ended, not left waiting", async () => {
      const job = "job_late_stream";
      const done = host.next((m) => m.name === "job_done" && m.body.job === job);
      expect(await host.ask("job_start", { job, argv: ["true"], stdin: false })).toMatchObject({
        name: "job_started",
      });
      expect(await done).toMatchObject({ body: { exit_code: 0, stdout_bytes: 0 } });
      const stream = host.bulk.open(PORTS.job.number, job);
      stream.end();
      expect((await readAll(stream)).length).toBe(0);
      await stream.closed;
    });

    test("more than the bound of jobs is refused", async () => {
      const ids = Array.from({ length: 128 }, (_, i) => `job_many${i}`);
      const ends = ids.map((id) => host.next((m) => m.name === "job_done" && m.body.job === id));
      const started = await Promise.all(
        ids.map((job) => host.ask("job_start", { job, argv: ["sleep", "1000"], stdin: false })),
      );
      expect(started.every(({ name }) => name === "job_started")).toBe(true);
      const answer = await host.ask("job_start", { job: "job_more", argv: ["true"], stdin: false });
      expect(answer).toMatchObject({ name: "error", body: { kind: "quota" } });
      await Promise.all(ids.map((job) => host.ask("job_signal", { job, signal: 9, tree: true })));
      const done = await Promise.all(ends);
      expect(done.every((m) => m.name === "job_done" && m.body.signal === 9)).toBe(true);
    });

    test("a repeated request is answered again and not run again", async () => {
      const body = { job: "job_once", command: "echo x >> /workspace/once", stdin: false };
      const done = host.next((m) => m.name === "job_done" && m.body.job === "job_once");
      expect(await host.ask("job_start", body, "same-id")).toMatchObject({ name: "job_started" });
      await done;
      const again = host.next((m) => m.name === "job_done" && m.body.job === "job_once");
      expect(await host.ask("job_start", body, "same-id")).toMatchObject({ name: "job_started" });
      expect(await again).toEqual(await done);
      expect((await host.run({ command: "cat once" })).stdout.toString()).toBe("x\n");
    });

    test("a host that does not read stops the program and not the agent's memory", async () => {
      const job = "job_yes";
      const stream = host.bulk.open(PORTS.job.number, job);
      const done = host.next((m) => m.name === "job_done" && m.body.job === job);
      await host.ask("job_start", { job, command: "exec yes", stdin: false });
      await stream.read();
      // It sleeps when its pipe is full, because nobody reads there any more.
      const waits = 'for p in /proc/[0-9]*; do grep -qs "^yes$" $p/comm && grep "^State:.S" $p/status; done';
      expect(await settles(async () => (await host.run({ command: waits })).stdout.length > 0)).toBe(true);
      const before = rig.residentBytes();
      for (let i = 0; i < 50; i++) await host.ping(1_000 + i);
      for (let i = 0; i < 5; i++) await host.run({ command: "true" });
      expect(rig.residentBytes() - before).toBeLessThan(24_000_000);
      await host.ask("job_signal", { job, signal: 9, tree: true });
      const { stdout } = await collect(stream);
      const message = await done;
      if (message.name !== "job_done") throw new Error("no end");
      // The first chunk was read apart.
      expect(message.body.stdout_bytes).toBeLessThan(4_000_000);
      expect(stdout.length).toBeGreaterThan(0);
      stream.end();
    });

    test("a terminal has its size before the first byte, and a new one when told", async () => {
      const job = "job_terminal";
      const stream = host.bulk.open(PORTS.job.number, job);
      const done = host.next((m) => m.name === "job_done" && m.body.job === job);
      const command = "stty size; echo $TERM; read line; stty size; exit 4";
      await host.ask("job_start", { job, command, stdin: true, terminal: { cols: 101, rows: 33 } });
      let shown = "";
      const reading = (async () => {
        for await (const { bytes } of readJobChunks(stream, ["stdout", "stderr"]))
          shown += String(Buffer.from(bytes));
      })();
      expect(await settles(async () => shown.includes("xterm-256color\r\n"))).toBe(true);
      expect(shown.startsWith("33 101\r\n")).toBe(true);
      await host.ask("job_resize", { job, terminal: { cols: 4_000, rows: 40 } });
      await writeJobChunks(stream, "stdin", Buffer.from("go\n"));
      expect(await done).toMatchObject({ body: { exit_code: 4 } });
      stream.end();
      await reading;
      const lines = shown.split("\r\n");
      expect(lines).toContain("40 1000");
    });
  });
});

const envBytes = encodeMessagePack(["A=vm", "B=vm", "HOME=/elsewhere", "U=žlutý"]);
