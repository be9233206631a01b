import { ERRORS, type ErrorKind, type ExecResult, type VmInfo } from "@capsem/api";
import { createNodeClient } from "@capsem/sdk/node";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { type Rig, startRig } from "../../service/src/testing/rig.ts";
import type { Calls } from "./attempt.ts";
import { timeoutOf, withTimeout } from "./call-limit.ts";
import { failureOf } from "./failure-of.ts";
import { ID_CHARS_MAX } from "./limits.ts";
import { type Connected, connect } from "./testing/connected.ts";
import { type FixtureGateway, startFixtureGateway } from "./testing/fixture-gateway.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let rig: Rig;
let gateway: FixtureGateway;
let mcp: Connected;
let hasty: Connected;

beforeAll(async () => {
  rig = await startRig();
  gateway = await startFixtureGateway(rig.layout.socket);
  const calls = createNodeClient({ url: gateway.url, token: () => gateway.token }) as Calls;
  mcp = await connect(calls);
  // Its commands have the least time limit that is implied: a second.
  hasty = await connect(calls, { timeoutMs: 1_000 });
});
beforeEach(() => {
  gateway.seen.length = 0;
});
afterEach(async () => {
  gateway.intercept = null;
  await mcp.value("capsem_purge", { all: true });
});
afterAll(async () => {
  await hasty?.close();
  await mcp?.close();
  await gateway?.close();
  await rig?.close();
});

const refuseAll = (error: Readonly<Record<string, unknown>>) => {
  gateway.intercept = (_, response) => {
    response.writeHead(Number(error.status)).end(JSON.stringify({ error }));
    return true;
  };
};
const create = async () => (await mcp.value<VmInfo>("capsem_create")).id;
const states = async () => (await mcp.value<{ vms: VmInfo[] }>("capsem_list")).vms.map(({ state }) => state);

describe("results", () => {
  it("say of an output that was truncated which part was kept, and of how many bytes", async () => {
    const vm_id = await create();
    const result = await mcp.call("capsem_exec", { vm_id, command: "seq 1 400000; echo short >&2" });
    const { stdout } = result.structuredContent as unknown as ExecResult;
    const total = Array.from({ length: 400_000 }, (_, at) => `${at + 1}\n`).join("").length;
    expect(stdout).toMatchObject({ truncated: true, total_bytes: total });
    expect(stdout.data).toMatch(/^1\n2\n3\n/);
    const note = JSON.parse(result.content[0]?.text ?? "") as Record<string, unknown>;
    expect(note).toMatchObject({ exit_code: 0, stdout_truncated: true, stderr_tail: "short\n" });
    expect(note).not.toHaveProperty("stderr_truncated");
    expect(note.note).toContain(`first 1048576 of ${total} bytes`);
    expect(note.note).not.toContain("whole");
    expect(stdout.data.endsWith(String(note.stdout_tail))).toBe(true);
  });

  it("say of a window that there is more", async () => {
    const vm_id = await create();
    await mcp.value("capsem_write_file", { vm_id, path: "large", content: "x".repeat(50_000) });
    const { content } = await mcp.call("capsem_read_file", { vm_id, path: "large", max_bytes: 40_000 });
    const note = JSON.parse(content[0]?.text ?? "") as Record<string, unknown>;
    expect(note).toMatchObject({ truncated: true, size: 50_000 });
    expect(note.note).not.toContain("whole");
  });

  it("have the logs of console and owner where no source is asked for", async () => {
    const vm_id = await create();
    const lines = async () =>
      (await mcp.value<{ lines: string[] }>("capsem_vm_logs", { vm_id })).lines.join("\n");
    await expect.poll(lines, { timeout: 20_000 }).toMatch(/^owner: .*claimed/m);
  });
});

describe("a failure", () => {
  it.each<[string, Record<string, unknown>, string]>([
    ["capsem_info", { vm_id: "agent1" }, 'vm_id: "agent1" is a name, not an id; capsem_list tells the id'],
    ["capsem_info", { vm_id: "vm_agent1" }, "vm_id: vm_ and 16 characters of a-z2-7"],
    ["capsem_info", {}, "vm_id: missing"],
    ["capsem_create", { cpus: 65, memory: 0.3 }, "cpus: at most 64; memory: in steps of 0.25"],
    ["capsem_purge", { all: "yes" }, "all: true or false"],
  ])("of %s with %j says plainly what is wanted", async (name, args, faults) => {
    expect((await mcp.failure(name, args)).reason).toBe(`Cannot use ${name}: ${faults}`);
    expect(gateway.seen).toEqual([]);
  });

  it("speaks of memory in the unit of the argument when the service finds it too large", async () => {
    const { reason } = await mcp.failure("capsem_create", { memory: 60 });
    expect(reason).toContain("60 GiB asked, limits 0.25 to 4");
  });

  it.each<[ErrorKind, string]>([
    ["service_away", "ask the user to run: capsem service start"],
    ["unavailable", "ask the user to run: capsem service start"],
    ["ledger_away", "if it goes on, ask the user to run: capsem status"],
    ["ledger_full", "ask the user to give it more room: capsem settings set ledger.vm_mib_max=MIB"],
    ["ledger_broken", "ask the user to run: capsem ledger verify --all"],
    ["locked", "ask the user to look at the corporation's policy: capsem corp info"],
  ])("names the remedy of %s", async (kind, remedy) => {
    const { status, retryable } = ERRORS[kind];
    refuseAll({ kind, reason: "Cannot do this: it does not run", status, retryable });
    expect(await mcp.failure("capsem_list")).toEqual({
      kind: "http",
      reason: `Cannot do this: it does not run; ${remedy}`,
      status,
      code: kind,
      retryable,
    });
  });

  it("by a rule has kind policy, the rule, and its reason as one line", async () => {
    const reason = "Cannot run the command: blocked by corp.no-curl: nothing is fetched\nwith curl";
    refuseAll({ kind: "policy", reason, status: 403, retryable: false, rule_id: "corp.no-curl" });
    expect(await mcp.failure("capsem_list")).toEqual({
      kind: "policy",
      reason: "Cannot run the command: blocked by corp.no-curl: nothing is fetched with curl",
      status: 403,
      code: "policy",
      rule_id: "corp.no-curl",
      retryable: false,
    });
  });

  it("by a rule repeats no more of a rule's name than a rule's name can have", async () => {
    const rule_id = `corp.\u202e${"x".repeat(5_000)}`;
    refuseAll({ kind: "policy", reason: "no", status: 403, retryable: false, rule_id, ask_id: 5 });
    const failure = await mcp.failure("capsem_list");
    expect(failure.rule_id).toHaveLength(ID_CHARS_MAX);
    expect(failure).not.toHaveProperty("ask_id");
  });
});

describe("the time limit of a command that names none", () => {
  it("is below the deadline of its call", () => {
    for (const [timeoutMs, secs, limitMs] of [
      [30_000, 25, 30_000],
      [6_000, 1, 6_000],
      [200, 1, 6_000],
    ] as const) {
      expect(withTimeout("exec", { command: "x" }, timeoutMs)).toEqual({ command: "x", timeout_secs: secs });
      expect(timeoutOf("exec", {}, timeoutMs)).toBe(limitMs);
      expect(timeoutOf("run", {}, timeoutMs)).toBe(limitMs + 60_000);
    }
    expect(withTimeout("exec", { timeout_secs: 300 }, 30_000)).toEqual({ timeout_secs: 300 });
    expect(withTimeout("list", {}, 30_000)).toEqual({});
  });

  it("has what a command without timeout_secs wrote until its implied limit", async () => {
    const vm_id = await create();
    const command = "echo begun; sleep 300";
    const partial = { timed_out: true, stdout: { data: "begun\n" } };
    expect(await hasty.value("capsem_exec", { vm_id, command })).toMatchObject(partial);
    expect(await hasty.value("capsem_run", { command })).toMatchObject(partial);
    expect(await states()).toEqual(["running"]);
  });

  it("says of a command whose answer does not come that its fate is open, and how to have longer", () => {
    const call = {
      tool: "capsem_exec",
      mutates: true,
      isJob: true,
      timeoutMs: 30_000,
      endedBy: "timeout",
    } as const;
    const failure = failureOf(call, new Error("timeout"));
    expect(failure).toMatchObject({ kind: "timeout", retryable: false });
    expect(failure.reason).toMatch(/unknown.*timeout_secs/);
  });
});
