import { readFileSync } from "node:fs";
import { TOOLS } from "@capsem/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { type ProgramEnd, runProgram } from "./program.ts";
import { skipUnless } from "./skip.ts";
import { type Connection, openVmStage, type Stage, writeMcpConfig } from "./stage.ts";
import { revisionOf } from "./wire-log.ts";

const listed = z.array(z.looseObject({ name: z.string() }));
const called = z.looseObject({ structuredContent: z.looseObject({}) });
const failed = z.object({ isError: z.boolean(), content: z.array(z.object({ text: z.string() })) });
const created = z.looseObject({ id: z.string(), state: z.string() });

const REPORT = 'echo "sum: $((40 + 2)) — für alle" | tee result.txt\nexit 3\n';
const RESULT = "sum: 42 — für alle\n";

describe("mcpc, a scriptable client with sessions", skipUnless("mcpc"), () => {
  let stage: Stage;
  let connection: Connection;
  beforeAll(async () => {
    stage = await openVmStage();
    connection = stage.connect("mcpc");
    const end = await mcpc("connect", `${writeMcpConfig(stage.home, connection)}:capsem`, "@proof");
    expect(end.code, end.stderr).toBe(0);
  });
  // Its session is a process in the background, which a failed test would leave behind.
  afterAll(async () => {
    await stage?.close();
  });

  const mcpc = (...words: readonly string[]): Promise<ProgramEnd> =>
    runProgram("mcpc", [...words, "--json"], stage.home);

  async function call(tool: string, args: object): Promise<Record<string, unknown>> {
    const end = await mcpc("@proof", "tools-call", tool, JSON.stringify(args));
    expect(end.code, end.stderr).toBe(0);
    return called.parse(JSON.parse(end.stdout)).structuredContent;
  }

  test("lists exactly the declared tools", async () => {
    const end = await mcpc("@proof", "tools-list");
    expect(end.code, end.stderr).toBe(0);
    const names = listed.parse(JSON.parse(end.stdout)).map(({ name }) => name);
    expect(names.sort()).toEqual(Object.keys(TOOLS).sort());
  });

  test("creates a VM, writes a script, runs it, reads what it made and deletes the VM", async () => {
    const vm = created.parse(await call("capsem_create", {}));
    expect(vm.state).toBe("running");
    const at = { vm_id: vm.id };
    await call("capsem_write_file", { ...at, path: "report.sh", content: REPORT });
    const ran = await call("capsem_exec", { ...at, command: "bash report.sh", timeout_secs: 30 });
    expect(ran).toMatchObject({ exit_code: 3, stdout: { encoding: "utf8", data: RESULT, truncated: false } });
    const read = await call("capsem_read_file", { ...at, path: "result.txt" });
    expect(read).toMatchObject({ encoding: "utf8", data: RESULT, size: Buffer.byteLength(RESULT) });
    await call("capsem_delete", at);
    expect(await stage.rig.client.vms.list()).toEqual([]);
  });

  test("is told why a call failed, in words that it shows", async () => {
    const { stdout } = await mcpc("@proof", "tools-call", "capsem_info", '{"vm_id":"vm_aaaaaaaaaaaaaaaa"}');
    const { isError, content } = failed.parse(JSON.parse(stdout));
    expect(isError).toBe(true);
    expect(JSON.parse(content[0]?.text ?? "")).toMatchObject({ error: { kind: "http", status: 404 } });
  });

  test("goes on in its session when the gateway's token is replaced", async () => {
    const before = readFileSync(stage.gateway.tokenFile, "utf8");
    await stage.gateway.rotateToken();
    const old = { authorization: `Bearer ${before.trim()}` };
    expect((await fetch(`${stage.gateway.url}/status`, { headers: old })).status).toBe(401);
    expect(await call("capsem_list", {})).toEqual({ vms: [] });
  });

  test("ends its session, and capsem-mcp ends with it", async () => {
    expect((await mcpc("@proof", "close")).code).toBe(0);
    const wire = await connection.wire();
    expect(wire.end).toEqual({ code: 0, signal: null });
    expect(wire.client).toBe("mcpc 0.2.6");
    expect(revisionOf(wire, "tools/call")).toBe("2025-11-25");
    expect(wire.methods).toContain("tools/list");
  });
});
