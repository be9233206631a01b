import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { ignore } from "@capsem/base";
import { PORTS, writeJobChunks } from "@capsem/wire";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { collect, readAll, settles, TestHost } from "./test-host.ts";
import { AgentRig, skipReason } from "./test-rig.ts";

/** A busy machine takes its time; who is done goes on at once. */
const SOON = { interval: 5, timeout: 10_000 };

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: the files and lanes of the guest agent: ${reason}`);

describe.skipIf(reason !== undefined)("the files and lanes of the guest agent", { timeout: 60_000 }, () => {
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

    test("a large file comes whole past a slow reader, a window of it too, and an interrupted read frees it", async () => {
      const bytes = Buffer.from(
        Uint32Array.from({ length: 1_048_576 }, (_, i) => Math.imul(i, 2_654_435_761)).buffer,
      );
      await write("large", bytes);
      const { answer, stream } = host.transfer("file_read", { path: "large", offset: 0 });
      stream.end();
      expect(await answer).toMatchObject({ body: { total: bytes.length } });
      const parts: Uint8Array[] = [];
      for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
        parts.push(chunk);
        // Turns of the event loop in which the agent may run ahead of us by no more than the credit.
        for (let turn = 0; turn < 10; turn += 1) await new Promise((next) => setImmediate(next));
      }
      expect(Buffer.concat(parts).equals(bytes)).toBe(true);
      const window = await read("large", 1_000_001, 300_003);
      expect(window.bytes.equals(bytes.subarray(1_000_001, 1_300_004))).toBe(true);
      expect((await read("large", bytes.length + 5)).bytes.length).toBe(0);

      const open = () =>
        readdirSync(`/proc/${rig.agentPid()}/fd`).filter((fd) => {
          try {
            return readlinkSync(`/proc/${rig.agentPid()}/fd/${fd}`).endsWith("/workspace/large");
          } catch {
            return false;
          }
        });
      const interrupted = host.transfer("file_read", { path: "large", offset: 0 });
      await interrupted.answer;
      await interrupted.stream.read();
      expect(open()).toHaveLength(1);
      interrupted.stream.reset("cancelled");
      await expect.poll(open, SOON).toHaveLength(0);
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
      expect(await host.ask("prepare_snapshot", { unmount: false })).toMatchObject({ name: "ack" });
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
