import type { ExecResult, FileWindowResult, ToolName, VmInfo } from "@capsem/api";
import { TOOLS } from "@capsem/api";
import { createNodeClient } from "@capsem/sdk/node";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { type Rig, startRig } from "../../service/src/testing/rig.ts";
import type { Calls } from "./attempt.ts";
import { timeoutOf } from "./call-limit.ts";
import { TEXT_MIRROR_BYTES_MAX } from "./limits.ts";
import type { Every } from "./progress.ts";
import { type Connected, connect } from "./testing/connected.ts";
import { type FixtureGateway, startFixtureGateway } from "./testing/fixture-gateway.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let rig: Rig;
let gateway: FixtureGateway;
let mcp: Connected;
const opened: Connected[] = [];
const seen = (part: string) => gateway.seen.filter((each) => each.includes(part));
const calls = (token: string | (() => string) = () => gateway.token) =>
  createNodeClient({ url: gateway.url, token }) as Calls;
const another = async (options: { timeoutMs?: number; every?: Every }, over = calls()) => {
  const connected = await connect(over, options);
  opened.push(connected);
  return connected;
};

beforeAll(async () => {
  rig = await startRig();
  gateway = await startFixtureGateway(rig.layout.socket);
  mcp = await connect(calls());
});
beforeEach(() => {
  gateway.seen.length = 0;
  gateway.intercept = null;
});
afterEach(async () => {
  gateway.intercept = null;
  for (const each of opened.splice(0)) await each.close();
  await mcp.value("capsem_purge", { all: true });
});
afterAll(async () => {
  await mcp?.close();
  await gateway?.close();
  await rig?.close();
});

const create = async (args: Record<string, unknown> = {}) =>
  (await mcp.value<VmInfo>("capsem_create", args)).id;
const states = async () => (await mcp.value<{ vms: VmInfo[] }>("capsem_list")).vms.map(({ state }) => state);

describe("host tools", () => {
  it("go through a VM's life, each result as its schema says", async () => {
    const results = new Map<ToolName, unknown>();
    const use = async (name: ToolName, args: Record<string, unknown> = {}) => {
      const value = await mcp.value<Record<string, unknown>>(name, args);
      TOOLS[name].output.parse(value);
      results.set(name, value);
      return value;
    };
    await use("capsem_status");
    const { id: vm_id } = await use("capsem_create", { cpus: 1, memory: 0.5, env: { COLOUR: "blue" } });
    expect(await use("capsem_info", { vm_id })).toMatchObject({
      id: vm_id,
      name: null,
      env_names: ["COLOUR"],
    });
    expect(await use("capsem_persist", { vm_id, name: "kept" })).toMatchObject({ name: "kept" });
    expect(await use("capsem_exec", { vm_id, command: "echo $COLOUR; echo no >&2; exit 3" })).toMatchObject({
      exit_code: 3,
      stdout: { encoding: "utf8", data: "blue\n", truncated: false },
      stderr: { encoding: "utf8", data: "no\n" },
    });
    expect(await use("capsem_write_file", { vm_id, path: "note.txt", content: "hä" })).toEqual({ bytes: 3 });
    expect(await use("capsem_read_file", { vm_id, path: "note.txt" })).toEqual({
      encoding: "utf8",
      data: "hä",
      offset: 0,
      bytes: 3,
      size: 3,
      truncated: false,
    });
    expect(JSON.stringify(await use("capsem_list_files", { vm_id }))).toContain("note.txt");
    expect(await use("capsem_timeline", { vm_id })).toMatchObject({ entries: expect.any(Array) });
    expect(await use("capsem_history", { vm_id, search: "COLOUR" })).toMatchObject({ total: 1 });
    await use("capsem_stats_detail", { vm_id });
    await use("capsem_vm_logs", { vm_id, tail: 5 });
    await use("capsem_host_logs", { tail: 5 });
    expect(await use("capsem_stop", { vm_id })).toEqual({ ok: true });
    expect(await use("capsem_start", { vm_id })).toMatchObject({ state: "running", name: "kept" });
    await use("capsem_stats");
    await use("capsem_panics", { since: "10m", limit: 5 });
    await use("capsem_triage", { since: "10m", limit: 5, vm_id });
    expect(await use("capsem_delete", { vm_id })).toEqual({ ok: true });
    expect(await use("capsem_list")).toEqual({ vms: [] });
    expect(await use("capsem_run", { command: "echo hi", env: { A: "1" }, timeout_secs: 30 })).toMatchObject({
      exit_code: 0,
      stdout: { data: "hi\n" },
    });
    expect(await use("capsem_purge")).toEqual({ deleted: [] });
    // Those of tool servers are used in tool-servers.test.ts.
    const names = Object.keys(TOOLS).filter((name) => !name.startsWith("capsem_mcp_"));
    expect([...results.keys()].sort(), "a tool that was not used").toEqual(names.sort());
  });

  it("bound work in the guest by timeout_secs: the result says so", async () => {
    const vm_id = await create();
    const result = await mcp.value<ExecResult>("capsem_exec", {
      vm_id,
      command: "sleep 60",
      timeout_secs: 0.2,
    });
    expect(result).toMatchObject({ timed_out: true });
    expect(await states()).toEqual(["running"]);
  });

  it("give the text of a short result as the same JSON", async () => {
    const { content, structuredContent } = await mcp.call("capsem_list");
    expect(JSON.parse(content[0]?.text ?? "")).toEqual(structuredContent);
  });

  it("give the size and the end of a long output as text, and all of it as structured content", async () => {
    const vm_id = await create();
    const result = await mcp.call("capsem_exec", {
      vm_id,
      command: "seq 1 20000; echo gone wrong >&2; exit 4",
    });
    const { stdout } = result.structuredContent as unknown as ExecResult;
    expect(stdout.data.length).toBeGreaterThan(TEXT_MIRROR_BYTES_MAX);
    const text = result.content[0]?.text ?? "";
    expect(Buffer.byteLength(text)).toBeLessThan(TEXT_MIRROR_BYTES_MAX);
    const note = JSON.parse(text) as Record<string, unknown>;
    expect(note).toMatchObject({ exit_code: 4, stderr_tail: "gone wrong\n" });
    expect(note.note).toContain(`${note.bytes} bytes`);
    expect(note.note).toContain("it is whole in structuredContent");
    expect(note.stdout_tail).toMatch(/19999\n20000\n$/);
    expect(note).not.toHaveProperty("stdout_truncated");
  });
});

describe("file tools", () => {
  it("keep every byte, as text where it is text and else as base64", async () => {
    const vm_id = await create();
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, at) => at));
    const content = bytes.toString("base64");
    await mcp.value("capsem_write_file", { vm_id, path: "b", content, encoding: "base64" });
    const back = await mcp.value<FileWindowResult>("capsem_read_file", { vm_id, path: "b" });
    expect(back).toMatchObject({ encoding: "base64", data: content, size: 256 });
    await mcp.value("capsem_write_file", { vm_id, path: "t", content: "\ufefföß\u0000" });
    const text = await mcp.value<FileWindowResult>("capsem_read_file", { vm_id, path: "t" });
    expect(text).toMatchObject({ encoding: "utf8", data: "\ufefföß\u0000" });
    expect(await mcp.failure("capsem_read_file", { vm_id, path: "b", encoding: "utf8" })).toMatchObject({
      kind: "invalid_input",
    });
  });

  it("read a long text in windows that join without a seam, each whole in the text", async () => {
    const vm_id = await create();
    const whole = "äöü€😀\n\u0001".repeat(4_000);
    await mcp.value("capsem_write_file", { vm_id, path: "long", content: whole });
    let read = "";
    for (let offset = 0, more = true; more; ) {
      const { content, structuredContent } = await mcp.call("capsem_read_file", {
        vm_id,
        path: "long",
        offset,
      });
      const window = structuredContent as unknown as FileWindowResult;
      expect(JSON.parse(content[0]?.text ?? "")).toEqual(window);
      expect(window).toMatchObject({ encoding: "utf8", offset, size: Buffer.byteLength(whole) });
      read += window.data;
      offset += window.bytes;
      more = window.truncated;
    }
    expect(read === whole).toBe(true);
  });

  it("list what the text holds of a full directory, and say that there is more", async () => {
    const vm_id = await create();
    await mcp.value("capsem_exec", {
      vm_id,
      command: 'd=$(printf "n%.0s" {1..150}); for i in {1..120}; do : > "$d$i"; done',
    });
    const { content, structuredContent } = await mcp.call("capsem_list_files", { vm_id });
    expect(JSON.parse(content[0]?.text ?? "")).toEqual(structuredContent);
    const { entries, more, total } = structuredContent as {
      entries: unknown[];
      more: boolean;
      total: number;
    };
    expect(total).toBeGreaterThanOrEqual(120);
    expect(entries.length).toBeLessThan(total);
    expect(more).toBe(true);
  });
});

describe("a failed call", () => {
  it("names each wrong argument and repeats no value", async () => {
    const secret = "s3cret value";
    const failures = [
      await mcp.failure("capsem_exec", { vm_id: secret, command: "" }),
      await mcp.failure("capsem_create", { env: { LD_PRELOAD: secret, B: 5 } }),
      await mcp.failure("capsem_create", { env: { LD_PRELOAD: secret } }),
      await mcp.failure("capsem_create", { memory: secret, colour: secret }),
      await mcp.failure("capsem_write_file", { vm_id: "x", path: "a", content: secret, encoding: secret }),
      await mcp.failure("capsem_panics", { since: secret }),
    ];
    for (const failure of failures) {
      expect(failure).toMatchObject({ kind: "invalid_input", retryable: false });
      expect(failure.reason).not.toContain("s3cret");
    }
    expect(failures[0]?.reason).toMatch(/^Cannot use capsem_exec: vm_id: .+; command: /);
    expect(failures[1]?.reason).toContain("env.B");
    expect(failures[2]?.reason).toContain("LD_PRELOAD");
    expect(failures[3]?.reason).toContain("colour: there is no such argument");
    expect(failures[5]?.reason).toContain("since: a span such as");
    expect(gateway.seen).toEqual([]);
  });

  it("has kind http, the status and the API's own kind when the service says no", async () => {
    const vm_id = "vm_aaaaaaaaaaaaaaaa";
    expect(await mcp.failure("capsem_info", { vm_id })).toMatchObject({
      kind: "http",
      status: 404,
      code: "vm_not_found",
      retryable: false,
      reason: expect.stringContaining(vm_id),
    });
  });

  it("has kind invalid_input when it is the service that finds the fault", async () => {
    expect(await mcp.failure("capsem_create", { cpus: 64 })).toMatchObject({
      kind: "invalid_input",
      status: 400,
    });
  });

  it("leaks neither a body that is not ours nor a stack", async () => {
    gateway.intercept = (_, response) => {
      response.writeHead(500, { "x-secret": "s3cret" }).end("<html>s3cret at /usr/lib/x.js:1</html>");
      return true;
    };
    const failure = await mcp.failure("capsem_list");
    expect(failure).toMatchObject({ kind: "http", status: 500 });
    expect(JSON.stringify(failure)).not.toContain("s3cret");
  });

  it("has kind internal when an answer is no JSON, and a change may have been made", async () => {
    gateway.intercept = (_, response) => {
      response.writeHead(200).end("s3cret");
      return true;
    };
    expect(await mcp.failure("capsem_list")).toMatchObject({ kind: "internal", retryable: false });
    const failure = await mcp.failure("capsem_create");
    expect(failure).toMatchObject({ kind: "internal", reason: expect.stringContaining("unknown") });
    expect(JSON.stringify(failure)).not.toContain("s3cret");
  });

  it("has kind network when nobody listens: nothing was sent", async () => {
    const nobody = await another({}, createNodeClient({ url: "http://127.0.0.1:9", token: "x" }) as Calls);
    for (const name of ["capsem_list", "capsem_create"]) {
      const failure = await nobody.failure(name);
      expect(failure).toMatchObject({ kind: "network", retryable: true });
      expect(failure.reason).not.toContain("unknown");
      expect(failure.reason).not.toContain("ECONNREFUSED");
      expect(failure.reason).toMatch(/; ask the user to run: capsem gateway start$/);
    }
  });

  it("of a change whose connection is lost was sent once, and says that the outcome is unknown", async () => {
    gateway.intercept = (incoming) => {
      incoming.socket.destroy();
      return true;
    };
    for (const [name, args] of [
      ["capsem_create", {}],
      ["capsem_purge", {}],
      ["capsem_exec", { vm_id: "vm_aaaaaaaaaaaaaaaa", command: "x" }],
      ["capsem_write_file", { vm_id: "vm_aaaaaaaaaaaaaaaa", path: "a", content: "x" }],
    ] as const) {
      gateway.seen.length = 0;
      const failure = await mcp.failure(name, args);
      expect(failure).toMatchObject({ kind: "network", retryable: false });
      expect(failure.reason).toContain("unknown");
      expect(gateway.seen, name).toHaveLength(1);
    }
  });

  it("of a change whose answer breaks off says that the outcome is unknown", async () => {
    gateway.intercept = (_, response) => {
      response.writeHead(200, { "content-length": "100" }).write('{"ok":');
      setImmediate(() => response.destroy());
      return true;
    };
    expect(await mcp.failure("capsem_purge")).toMatchObject({
      kind: "network",
      reason: expect.stringContaining("unknown"),
      retryable: false,
    });
  });

  it("of a change that a gateway lost half way says that the outcome is unknown", async () => {
    gateway.intercept = (_, response) => {
      response.writeHead(502).end("<html>Bad Gateway</html>");
      return true;
    };
    expect(await mcp.failure("capsem_create")).toMatchObject({
      kind: "http",
      status: 502,
      reason: expect.stringContaining("unknown"),
      retryable: false,
    });
    expect((await mcp.failure("capsem_list")).reason).not.toContain("unknown");
    expect(seen("/vms/create")).toHaveLength(1);
  });

  it("has kind timeout after --timeout-ms, also when an answer stops in its middle", async () => {
    const hasty = await another({ timeoutMs: 150 });
    gateway.intercept = () => true;
    expect(await hasty.failure("capsem_list")).toMatchObject({ kind: "timeout", retryable: true });
    expect(await hasty.failure("capsem_delete", { vm_id: "vm_abcdefghij234567" })).toMatchObject({
      kind: "timeout",
      reason: expect.stringContaining("unknown"),
      retryable: false,
    });
    expect(seen("/vms/vm_abcdefghij234567/delete")).toHaveLength(1);
    gateway.intercept = (_, response) => {
      response.writeHead(200).write('{"vms":');
      return true;
    };
    expect(await hasty.failure("capsem_list")).toMatchObject({ kind: "timeout" });
  });

  it("comes later for a call that starts a VM", () => {
    expect(timeoutOf("list", {}, 30_000)).toBe(30_000);
    expect(timeoutOf("exec", { timeout_secs: 5 }, 30_000)).toBe(15_000);
    expect(timeoutOf("create", {}, 30_000)).toBe(90_000);
    expect(timeoutOf("run", { timeout_secs: 5 }, 30_000)).toBe(75_000);
    expect(timeoutOf("mcpCall", {}, 30_000)).toBe(60_000);
  });

  it("has kind cancelled when the service says so", async () => {
    gateway.intercept = (_, response) => {
      const error = { kind: "cancelled", reason: "Cannot finish: cancelled", status: 499, retryable: false };
      response.writeHead(499).end(JSON.stringify({ error }));
      return true;
    };
    expect(await mcp.failure("capsem_list")).toMatchObject({ kind: "cancelled", status: 499 });
  });

  it("is of one line and of bounded length, whatever the other end says", async () => {
    gateway.intercept = (_, response) => {
      const error = {
        kind: "quota",
        reason: `a\n\u001b[31m${"x".repeat(10_000)}`,
        status: 429,
        retryable: true,
      };
      response.writeHead(429).end(JSON.stringify({ error }));
      return true;
    };
    const { reason } = await mcp.failure("capsem_list");
    expect(reason.length).toBeLessThan(1_000);
    expect(reason).not.toMatch(/\p{Cc}/u);
  });
});

describe("a call that is given up", () => {
  const cancelWhen = async (
    connected: Connected,
    name: string,
    args: Record<string, unknown>,
    ready: () => unknown,
  ) => {
    const abort = new AbortController();
    const call = connected.call(name, args, { signal: abort.signal }).catch(() => "gone");
    await expect.poll(ready, { timeout: 20_000 }).toBeTruthy();
    abort.abort();
    expect(await call).toBe("gone");
  };
  const jobsOf = async (id: string) => {
    const { jobs } = (await rig.client.get(`/vms/${id}/jobs/list`)).json<{ jobs: { state: string }[] }>();
    return jobs.map(({ state }) => state);
  };

  it("kills the command of capsem_exec and leaves its VM running", async () => {
    const vm_id = await create();
    const isRunning = async () => (await jobsOf(vm_id)).includes("running");
    await cancelWhen(mcp, "capsem_exec", { vm_id, command: "sleep 300", timeout_secs: 300 }, isRunning);
    await expect.poll(() => jobsOf(vm_id), { timeout: 20_000 }).toEqual(["done"]);
    expect(await states()).toEqual(["running"]);
  });

  it("is not cut at --timeout-ms when it names more in timeout_secs", async () => {
    const vm_id = await create();
    const hasty = await another({ timeoutMs: 200 });
    const args = { vm_id, command: "sleep 0.6; echo done", timeout_secs: 30 };
    expect(await hasty.value<ExecResult>("capsem_exec", args)).toMatchObject({ stdout: { data: "done\n" } });
  });

  it("destroys the VM of capsem_run", async () => {
    const isUp = async () => (await states()).includes("running");
    await cancelWhen(mcp, "capsem_run", { command: "sleep 300", timeout_secs: 300 }, isUp);
    await expect.poll(states, { timeout: 20_000 }).toEqual([]);
  });

  it("undoes nothing else that was accepted", async () => {
    rig.script({ readyDelayMs: 500 });
    const isStarting = async () => (await states()).some((state) => state !== "running");
    await cancelWhen(mcp, "capsem_create", { name: "stays" }, isStarting);
    await expect.poll(states, { timeout: 20_000 }).toEqual(["running"]);
    rig.script({});
    expect(seen("/vms/create")).toHaveLength(1);
  });
});

describe("progress", () => {
  it("is told again and again while a call lasts, to a client that asked, and never after its end", async () => {
    const ticks = new Set<() => void>();
    const every: Every = (_, tick) => {
      ticks.add(tick);
      return () => void ticks.delete(tick);
    };
    const slow = await another({ every });
    let finish: () => void = () => undefined;
    gateway.intercept = (_, response) => {
      finish = () => response.writeHead(200).end('{"vms":[]}');
      return true;
    };
    const told: number[] = [];
    const call = slow.call("capsem_list", {}, { onprogress: ({ progress }) => void told.push(progress) });
    await expect.poll(() => seen("/vms/list").length).toBe(1);
    for (let count = 0; count < 3; count += 1) for (const tick of ticks) tick();
    await expect.poll(() => told).toEqual([2, 4, 6]);
    finish();
    await call;
    expect(ticks.size).toBe(0);
    const quiet = slow.call("capsem_list");
    await expect.poll(() => seen("/vms/list").length).toBe(2);
    expect(ticks.size).toBe(0);
    finish();
    await quiet;
  });
});

describe("the gateway's token", () => {
  it("is read again when it was replaced, and the call is made once", async () => {
    let file = gateway.token;
    const renewing = await another(
      {},
      calls(() => file),
    );
    expect(await renewing.value("capsem_list")).toEqual({ vms: [] });
    gateway.token = "Another0Token";
    file = gateway.token;
    gateway.seen.length = 0;
    await renewing.value("capsem_create");
    expect(seen("/vms/create")).toHaveLength(1);
  });

  it("that cannot be read is a failure which does not hold its path", async () => {
    const client = createNodeClient({ url: gateway.url, tokenFile: "/no/such/file" });
    const failure = await (await another({}, client as Calls)).failure("capsem_create");
    expect(failure).toMatchObject({ kind: "internal", code: "unauthorized" });
    expect(JSON.stringify(failure)).not.toMatch(/such|ENOENT/);
    expect(gateway.seen).toEqual([]);
  });

  it("that is not accepted is a failure which does not hold it", async () => {
    const wrong = await another({}, calls("WrongT0ken"));
    const failure = await wrong.failure("capsem_list");
    expect(failure).toMatchObject({ kind: "http", status: 401, code: "unauthorized" });
    expect(failure.reason).toContain(
      "the token was replaced or is not this gateway's; ask the user to give capsem-mcp the gateway's --token-file",
    );
    expect(JSON.stringify(failure)).not.toContain("WrongT0ken");
  });
});
