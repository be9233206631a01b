import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client } from "./client.ts";
import { CapsemError } from "./error.ts";
import type { FixtureService } from "./testing/index.ts";
import { type Rig, startWays, WAYS } from "./testing/ways.ts";

let rig: Rig;
let service: FixtureService;
beforeAll(async () => {
  rig = await startWays();
  service = rig.service;
});
afterAll(() => rig.close());

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** Bytes of buffers that something still holds: what only waits for its collection is collected first. */
function heldBytes(): number {
  collect();
  // Buffers are freed on another thread, which a second collection waits for.
  collect();
  return process.memoryUsage().arrayBuffers;
}

async function failure(work: Promise<unknown>): Promise<CapsemError> {
  try {
    await work;
  } catch (thrown) {
    if (thrown instanceof CapsemError) return thrown;
    throw thrown;
  }
  throw new Error("it did not fail");
}

describe.each(WAYS)("over the %s", (way) => {
  let client: Client;
  beforeAll(() => {
    client = rig.client(way);
  });

  test("a VM is created, listed, renamed, stopped, started and deleted", async () => {
    const info = await client.vms.create({ name: "one", cpus: 1, memory_gib: 0.5, env: { A: "1" } });
    const vm = client.vm(info.id);
    expect((await client.vms.list()).map((each) => each.name)).toEqual(["one"]);
    expect((await vm.rename("two")).name).toBe("two");
    await vm.stop();
    expect((await vm.status()).state).toBe("stopped");
    expect((await vm.start()).state).toBe("running");
    await vm.delete();
    expect(await client.vms.list()).toEqual([]);
  });

  test("status, health and any other route are typed calls", async () => {
    await client.health();
    expect((await client.status()).version).toBe("0.1.0");
    expect(await client.operation("list")({})).toEqual({ vms: [] });
  });

  test("the service's error keeps its kind, words and status", async () => {
    const error = await failure(client.vm("vm_aaaaaaaaaaaaaaaa").info());
    expect(error.toJSON()).toEqual({
      error: {
        kind: "vm_not_found",
        reason: "Cannot find VM vm_aaaaaaaaaaaaaaaa: it does not exist",
        status: 404,
        retryable: false,
      },
    });
  });

  test("exec gives output and exit code, feeds stdin, and an abort kills the job", async () => {
    const vm = client.vm((await client.vms.create()).id);
    const result = await vm.exec({
      command: "cat; echo err >&2; exit 3",
      stdin: { encoding: "utf8", data: "grüße" },
    });
    expect(result).toMatchObject({ exit_code: 3, stdout: { data: "grüße" }, stderr: { data: "err\n" } });
    const abort = new AbortController();
    const pending = failure(vm.exec({ command: "sleep 100" }, { signal: abort.signal }));
    await expect.poll(async () => (await vm.jobs()).filter((job) => job.state === "running").length).toBe(1);
    abort.abort();
    expect((await pending).kind).toBe("cancelled");
    await expect.poll(async () => (await vm.jobs()).filter((job) => job.state === "running").length).toBe(0);
    await vm.delete();
  });

  test("an aborted signal stops a call before it is sent", async () => {
    const count = service.seen.length;
    const error = await failure(client.vms.create({}, { signal: AbortSignal.abort() }));
    expect(error).toMatchObject({ kind: "cancelled", outcome: "none" });
    expect(service.seen.length).toBe(count);
  });

  test("a held VM dies with its connection and tells when it is gone", async () => {
    const held = await client.hold({ memory_gib: 0.25 });
    expect(service.state.vms.has(held.info.id)).toBe(true);
    await client.vm(held.info.id).delete();
    expect(await held.gone).toEqual({ reason: null });
    const second = await client.hold();
    second.drop();
    await expect.poll(() => service.state.vms.has(second.info.id)).toBe(false);
    expect((await failure(second.gone)).kind).toBe("unavailable");
  });

  test("files are written, read in windows, listed, moved and removed", async () => {
    const { files } = client.vm((await client.vms.create()).id);
    async function* parts() {
      yield new Uint8Array([0, 1, 2]);
      yield new Uint8Array([255]);
    }
    await files.mkdir("a/b", { parents: true });
    expect(await files.write("a/b/ü.bin", parts(), { mode: 0o600 })).toEqual({ bytes: 4 });
    expect(await files.stat("a/b/ü.bin")).toMatchObject({ type: "file", size: 4, mode: 0o600 });
    expect(await files.read("a/b/ü.bin", { offset: 1, length: 2 })).toEqual({
      size: 4,
      bytes: new Uint8Array([1, 2]),
    });
    await files.write("a/b/ü.bin", new Uint8Array([9]), { offset: 3 });
    expect(Buffer.from((await files.read("a/b/ü.bin")).bytes)).toEqual(Buffer.from([0, 1, 2, 9]));
    await files.rename("a/b/ü.bin", "c");
    expect((await files.list()).entries.map((entry) => entry.name)).toEqual(["a", "c"]);
    await files.remove("a", { recursive: true });
    expect((await failure(files.stat("a"))).kind).toBe("file_not_found");
  });

  test("a large file streams both ways without being held in memory", async () => {
    const { files } = client.vm((await client.vms.create()).id);
    const part = new Uint8Array(1024 * 1024).fill(7);
    const before = heldBytes();
    let [ahead, read, peak] = [0, 0, 0];
    const look = () => {
      peak = Math.max(peak, heldBytes() - before);
    };
    async function* many() {
      for (let at = 0; at < 256; at += 1) {
        ahead += part.length;
        if (at % 16 === 15) look();
        yield part;
      }
    }
    expect((await files.write("big", many())).bytes).toBe(ahead);
    const { size, body } = await files.readStream("big");
    let looked = 0;
    for await (const bytes of body) {
      read += bytes.length;
      if (read - looked < 16 * part.length) continue;
      looked = read;
      look();
    }
    expect([size, read]).toEqual([ahead, ahead]);
    expect(peak).toBeLessThan(40 * 1024 * 1024);
  });

  test("trees go in and out as tar streams", async () => {
    const { files, trees } = client.vm((await client.vms.create()).id);
    await files.write("x", new Uint8Array([1]));
    const parts: Uint8Array[] = [];
    for await (const part of await trees.read("/workspace")) parts.push(part);
    await trees.write("copy", Buffer.concat(parts));
    expect((await files.stat("copy/x")).size).toBe(1);
  });

  test("logs are filtered by the service", async () => {
    const vm = client.vm((await client.vms.create()).id);
    expect((await vm.logs({ source: "guest", grep: "ready" })).lines).toEqual(["agent is ready"]);
    expect((await client.vms.purge({ all: true })).length).toBeGreaterThan(0);
  });
});
