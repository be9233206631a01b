import { existsSync, readFileSync } from "node:fs";
import { defer, ignore } from "@capsem/base";
import { encodeMessagePack, PORTS, readJobChunks, writeJobChunks } from "@capsem/wire";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { collect, readAll, TestHost } from "./test-host.ts";
import { AgentRig, skipReason } from "./test-rig.ts";

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: the guest agent as a process: ${reason}`);

describe.skipIf(reason !== undefined)("the guest agent as a process", { timeout: 60_000 }, () => {
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

  describe("files", () => {
    const write = async (path: string, bytes: Uint8Array, more: { offset?: number; mode?: number } = {}) => {
      const { answer, stream } = host.transfer("file_write", { path, make_parents: true, ...more });
      ignore(answer);
      await stream.write(bytes);
      stream.end();
      return answer;
    };
    const read = async (path: string, offset = 0, length?: number) => {
      const { answer, stream } = host.transfer("file_read", {
        path,
        offset,
        ...(length === undefined ? {} : { length }),
      });
      stream.end();
      const bytes = readAll(stream);
      ignore(bytes);
      const first = await answer;
      if (first.name !== "file_answer") return { first, bytes: Buffer.alloc(0) };
      return { first, bytes: await bytes };
    };

    test.each([
      ["empty", 0],
      ["one byte", 1],
      ["a megabyte", 1_048_576],
    ])("a file comes back as it was written: %s", async (_, size) => {
      const bytes = Buffer.from(Array.from({ length: size }, (__, i) => (i * 31) & 255));
      expect(await write("dir/žluť/file.bin", bytes, { mode: 0o640 })).toMatchObject({
        name: "file_answer",
        body: { bytes: size },
      });
      const back = await read("/workspace/dir/žluť/file.bin");
      expect(back.first).toMatchObject({ body: { total: size } });
      expect(back.bytes.equals(bytes)).toBe(true);
      const stat = await host.ask("file_stat", { path: "dir/žluť/file.bin", follow: true });
      expect(stat).toMatchObject({
        body: { entry: { name: ".", type: "file", size, mode: 0o640, uid: 1000, gid: 1000 } },
      });
    });

    test("a window of a file has the true size beside it", async () => {
      await write("window", Buffer.from("0123456789"));
      const { first, bytes } = await read("window", 3, 4);
      expect(bytes.toString()).toBe("3456");
      expect(first).toMatchObject({ body: { total: 10 } });
    });

    test("a window is written in place", async () => {
      await write("placed", Buffer.from("0123456789"));
      await write("placed", Buffer.from("ab"), { offset: 4 });
      expect((await read("placed")).bytes.toString()).toBe("0123ab6789");
    });

    test("an interrupted write leaves the old file", async () => {
      await write("kept", Buffer.from("old"));
      const { answer, stream } = host.transfer("file_write", { path: "kept", make_parents: false });
      await stream.write(Buffer.from("new"));
      stream.reset("cancelled");
      expect(await answer).toMatchObject({ name: "error", body: { kind: "file_failed" } });
      expect((await read("kept")).bytes.toString()).toBe("old");
      expect((await host.run({ command: "ls -a | grep -c capsem || true" })).stdout.toString().trim()).toBe(
        "0",
      );
    });

    test.each([
      ["a missing file", "nothing", "file_not_found"],
      ["a directory", "/etc", "file_wrong_type"],
      ["a secret of root", "/etc/secret", "file_not_permitted"],
      ["a NUL", "a\0b", "invalid_input"],
      ["a name that is too long", "x".repeat(300), "invalid_input"],
    ])("reading %s is refused with its kind", async (_, path, kind) => {
      expect((await read(path)).first).toMatchObject({ name: "error", body: { kind } });
    });

    test("a write that is not permitted stops the sender", async () => {
      const { answer, stream } = host.transfer("file_write", { path: "/etc/new", make_parents: false });
      expect(await answer).toMatchObject({ name: "error", body: { kind: "file_not_permitted" } });
      await expect(stream.read()).rejects.toThrow(/reset/);
    });

    test("no link and no path leads out of the workload root", async () => {
      await host.run({ command: "ln -sf /proc/1/root/etc/hostname out; ln -sf ../../../../etc/hostname up" });
      expect((await read("up")).bytes.toString()).toBe("plain\n");
      expect((await read("../../../../../etc/hostname")).bytes.toString()).toBe("plain\n");
    });

    test("directories are made, listed, renamed and removed", async () => {
      expect(await host.ask("file_mkdir", { path: "d/e/f", parents: true })).toMatchObject({
        name: "file_answer",
      });
      expect(await host.ask("file_mkdir", { path: "d/e/f", parents: false })).toMatchObject({
        body: { kind: "file_exists" },
      });
      expect(await host.ask("file_rename", { path: "d/e", to: "d/g" })).toMatchObject({
        name: "file_answer",
      });
      expect(await host.ask("file_remove", { path: "d", recursive: false })).toMatchObject({
        body: { kind: "file_exists" },
      });
      expect(await host.ask("file_remove", { path: "d", recursive: true })).toMatchObject({
        name: "file_answer",
      });
      expect(await host.ask("file_stat", { path: "d", follow: false })).toMatchObject({
        body: { kind: "file_not_found" },
      });
    });

    test("pages of a listing are sorted by bytes and know what follows", async () => {
      await host.run({
        command: "mkdir l && cd l && touch b a Z ž 10 9 && ln -s a link && mkdir sub && touch sub/x",
      });
      const first = await host.ask("file_list", { path: "l", offset: 0, limit: 5, depth: 1 });
      const rest = await host.ask("file_list", { path: "l", offset: 5, limit: 5, depth: 1 });
      if (first.name !== "file_answer" || rest.name !== "file_answer") throw new Error("no listing");
      expect(first.body).toMatchObject({ total: 8, more: true });
      expect(rest.body).toMatchObject({ total: 8, more: false });
      const names = [...(first.body.entries ?? []), ...(rest.body.entries ?? [])].map(({ name }) => name);
      expect(names).toEqual(["10", "9", "Z", "a", "b", "link", "sub", "ž"]);
      expect(rest.body.entries?.[0]).toMatchObject({ type: "symlink", target: "a" });
    });

    test("a deeper listing has relative names, and says what cannot be listed", async () => {
      const deep = await host.ask("file_list", { path: "/workspace/l", offset: 0, limit: 100, depth: 3 });
      if (deep.name !== "file_answer") throw new Error("no listing");
      expect(deep.body.entries?.map(({ name }) => name)).toContain("sub/x");
      expect(deep.body.entries?.find(({ name }) => name === "link")).toMatchObject({
        type: "symlink",
        target: "a",
      });
      const none = await host.ask("file_list", { path: "nothing", offset: 0, limit: 1, depth: 2 });
      expect(none).toMatchObject({ name: "error", body: { kind: "file_not_found" } });
    });

    test("a directory of thousands is listed as a whole", async () => {
      await host.run({ command: "mkdir many && cd many && seq -f f%05g 9000 | xargs touch" });
      const page = await host.ask("file_list", { path: "many", offset: 8_990, limit: 256, depth: 1 });
      if (page.name !== "file_answer") throw new Error("no listing");
      expect(page.body.total).toBe(9_000);
      expect(page.body.entries?.at(-1)?.name).toBe("f09000");
    });
  });

  describe("trees", () => {
    const take = async (path: string) => {
      const { answer, stream } = host.transfer("tree_out", { path });
      stream.end();
      const bytes = readAll(stream);
      ignore(bytes);
      const first = await answer;
      return { first, bytes: first.name === "error" ? Buffer.alloc(0) : await bytes };
    };
    const give = async (path: string, bytes: Uint8Array) => {
      const { answer, stream } = host.transfer("tree_in", { path });
      ignore(answer);
      try {
        await stream.write(bytes);
        stream.end();
      } catch (error) {
        expect(String(error)).toMatch(/reset/);
      }
      return answer;
    };

    test("a tree goes out and in with modes, links, times and unicode names", async () => {
      const make =
        "mkdir -p t/a/ž && cd t && echo x > a/ž/f && chmod 751 a/ž/f && ln -s ž/f a/l && touch -d @1000000000 a/ž/f && chmod 500 a/ž";
      await host.run({ command: make });
      const out = await take("t");
      expect(out.first).toMatchObject({ name: "file_answer" });
      expect(await give("copy/of/t", out.bytes)).toMatchObject({
        name: "file_answer",
        body: { bytes: out.bytes.length },
      });
      const look = (at: string) =>
        `cd ${at} && find . -mindepth 1 -printf '%P %y %m %T@ %l\\n' | sort | sed 's/ \\([0-9]*\\)\\.[0-9]* / \\1 /'`;
      const before = (await host.run({ command: look("t") })).stdout.toString();
      expect((await host.run({ command: look("copy/of/t") })).stdout.toString()).toBe(before);
      expect(before).toContain("a/ž/f f 751 1000000000 ");
    });

    test("a tree that is not there is refused", async () => {
      expect((await take("no-tree")).first).toMatchObject({
        name: "error",
        body: { kind: "file_not_found" },
      });
    });

    test("what is no archive is refused, and so is a path that leads out", async () => {
      expect(await give("bad", Buffer.alloc(10_240, 120))).toMatchObject({
        name: "error",
        body: { kind: "invalid_input" },
      });
      await host.run({
        command: "mkdir esc && cd esc && echo x > ../esc-file && tar -cPf ../esc.tar ../esc-file",
      });
      const { answer, stream } = host.transfer("file_read", { path: "esc.tar", offset: 0 });
      stream.end();
      const bytes = await readAll(stream);
      expect(await answer).toMatchObject({ name: "file_answer" });
      expect(await give("esc/in", bytes)).toMatchObject({ name: "error", body: { kind: "invalid_input" } });
    });
  });

  describe("the lanes", () => {
    test("while the VM is being saved new work is refused and no frame leaves", async () => {
      const job = "job_saved";
      const stream = host.bulk.open(PORTS.job.number, job);
      await host.ask("job_start", { job, command: "while :; do echo tick; sleep 0.01; done", stdin: false });
      let received = 0;
      const reading = (async () => {
        for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read())
          received += chunk.length;
      })();
      ignore(reading);
      expect(await host.ask("prepare_snapshot", {})).toMatchObject({ name: "ack" });
      await host.ping(5_000);
      const at = received;
      for (let i = 0; i < 20; i++) await host.ping(5_001 + i);
      expect(received).toBe(at);
      const refused = host.next((m) => m.name === "error");
      ignore(host.ask("file_stat", { path: "x", follow: false }));
      expect(await host.ask("thaw", {})).toMatchObject({ name: "ack" });
      expect(await refused).toMatchObject({ body: { kind: "wrong_state" } });
      expect(await settles(async () => received > at)).toBe(true);
      await host.ask("job_signal", { job, signal: 9, tree: true });
      await reading;
      stream.end();
    });

    test("a job goes on over a new generation, and its end is told to the next", async () => {
      const job = "job_over";
      const stream = host.bulk.open(PORTS.job.number, job);
      const done = host.next((m) => m.name === "job_done" && m.body.job === job);
      await host.ask("job_start", {
        job,
        command: "echo before; read x; yes | head -c 1000000; exit 9",
        stdin: true,
      });
      await stream.read();
      await host.startGeneration();
      await expect(stream.read()).rejects.toThrow(/lane/);
      const again = host.bulk.open(PORTS.job.number, job);
      const output = collect(again);
      await writeJobChunks(again, "stdin", Buffer.from("go\n"));
      again.end();
      expect(await done).toMatchObject({ body: { exit_code: 9, stdout_bytes: 1_000_007 } });
      expect((await output).stdout.length).toBe(1_000_000);
    });

    test("output that has no stream is counted and thrown away", async () => {
      const job = "job_lost";
      const stream = host.bulk.open(PORTS.job.number, job);
      const done = host.next((m) => m.name === "job_done" && m.body.job === job);
      await host.ask("job_start", { job, command: "sleep 0.3; yes | head -c 3000000", stdin: false });
      stream.reset("cancelled");
      expect(await done).toMatchObject({ body: { exit_code: 0, stdout_bytes: 3_000_000 } });
    });

    test("a stream of no port and one that nobody asked for are refused", async () => {
      const stream = host.bulk.open(PORTS.retired.number, "x");
      await expect(stream.read()).rejects.toThrow(/no_such_port/);
    });

    test("a bad message ends the control stream and not the agent", async () => {
      const instance = host.agentInstance;
      const ended = host.control.mux?.ended;
      await host.port?.stream.write(Buffer.from([0, 0, 0, 3, 0x92, 0x05, 0xc0]));
      await ended;
      await host.startGeneration();
      expect(host.agentInstance).toBe(instance);
      expect((await host.run({ command: "echo still" })).stdout.toString()).toBe("still\n");
    });

    test("garbage instead of frames ends the lane and not the agent", async () => {
      const instance = host.agentInstance;
      const ended = host.control.mux?.ended;
      host.sockets[0]?.write(Buffer.alloc(70_000, 0xfe));
      await ended;
      await host.startGeneration();
      expect(host.agentInstance).toBe(instance);
      expect(await host.ping(7)).toMatchObject({ sequence: 7 });
    });
  });

  describe("the end", () => {
    test("a shutdown kills the workload, answers once, and asks the kernel for the end", async () => {
      const job = "job_last";
      const done = host.next((m) => m.name === "job_done" && m.body.job === job);
      await host.ask("job_start", { job, argv: ["sleep", "1000"], stdin: false });
      // The scratch root was not mounted by the helper, so it cannot be unmounted by it.
      expect(await host.ask("shutdown", {}, "bye")).toMatchObject({
        name: "error",
        body: { kind: "internal" },
      });
      expect(await done).toMatchObject({ body: { signal: 9 } });
      expect(
        await settles(async () => existsSync(rig.sysrqFile) && readFileSync(rig.sysrqFile, "utf8") === "o"),
      ).toBe(true);
    });

    test("an agent that was killed comes back as another instance", async () => {
      const instance = host.agentInstance;
      process.kill(rig.agentPid(), "SIGKILL");
      host = new TestHost(await rig.accept("control"), await rig.accept("bulk"));
      const ready = await host.startGeneration();
      expect(ready.agent_instance).not.toBe(instance);
    });
  });
});

const envBytes = encodeMessagePack(["A=vm", "B=vm", "HOME=/elsewhere", "U=žlutý"]);

/** Looks again each turn of the event loop until it is so, or the test's own time is over. */
async function settles(isSo: () => Promise<boolean>): Promise<boolean> {
  for (let tries = 0; tries < 1_000; tries++) {
    if (await isSo()) return true;
    const turn = defer<void>();
    setTimeout(turn.resolve, 5);
    await turn.promise;
  }
  return false;
}
