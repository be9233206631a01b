import { TOOLS } from "@capsem/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { runProgram } from "./program.ts";
import { skipUnless } from "./skip.ts";
import { openVmStage, type Stage } from "./stage.ts";
import { revisionOf } from "./wire-log.ts";

const listed = z.object({ result: z.object({ tools: z.array(z.looseObject({ name: z.string() })) }) });
const created = z.looseObject({ id: z.string() });
const called = z.object({ result: z.object({ structuredContent: z.unknown() }) });

describe("the MCP Inspector's command line", skipUnless("inspector"), () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openVmStage();
  });
  afterAll(() => stage?.close());

  async function inspect(name: string, ...words: readonly string[]) {
    const connection = stage.connect(name);
    const args = [connection.command, ...connection.args, "--format", "json", ...words];
    const end = await runProgram("inspector", args, stage.home);
    return { ...end, wire: await connection.wire() };
  }

  test.each([
    ["legacy", "2025-11-25"],
    ["modern", "2026-07-28"],
    ["auto", "2026-07-28"],
  ])("lists exactly the declared tools in its %s era", async (era, revision) => {
    const { code, stdout, stderr, wire } = await inspect(
      era,
      "--protocol-era",
      era,
      "--method",
      "tools/list",
      "--strict",
    );
    expect(code, stderr).toBe(0);
    const { tools } = listed.parse(JSON.parse(stdout)).result;
    expect(tools.map(({ name }) => name).sort()).toEqual(Object.keys(TOOLS).sort());
    expect(wire.client).toBe("inspector-cli 2.12.0");
    expect(revisionOf(wire, "tools/list")).toBe(revision);
    expect(wire.end).toEqual({ code: 0, signal: null });
  });

  test("calls capsem_status and gets what the service says of itself", async () => {
    const { code, stdout, stderr, wire } = await inspect(
      "status",
      "--method",
      "tools/call",
      "--tool-name",
      "capsem_status",
    );
    expect(code, stderr).toBe(0);
    const { structuredContent } = called.parse(JSON.parse(stdout)).result;
    expect(structuredContent).toMatchObject({
      pid: stage.rig.servicePid(),
      vms: { running: 0, total: 0 },
    });
    expect(wire.end).toEqual({ code: 0, signal: null });
  });

  test("creates a VM, writes a file, runs it, reads the result and deletes the VM", async () => {
    const call = async (tool: string, args: Readonly<Record<string, string>>) => {
      const words = Object.entries(args).flatMap(([name, value]) => ["--tool-arg", `${name}=${value}`]);
      const end = await inspect(tool, "--method", "tools/call", "--tool-name", tool, ...words);
      expect(end.code, end.stderr).toBe(0);
      return called.parse(JSON.parse(end.stdout)).result.structuredContent;
    };
    const { id: vm_id } = created.parse(await call("capsem_create", { name: "inspected" }));
    await call("capsem_write_file", { vm_id, path: "sum.sh", content: "echo $((40 + 2)) > sum.txt" });
    expect(await call("capsem_exec", { vm_id, command: "sh sum.sh" })).toMatchObject({ exit_code: 0 });
    expect(await call("capsem_read_file", { vm_id, path: "sum.txt" })).toMatchObject({ data: "42\n" });
    await call("capsem_delete", { vm_id });
    expect(await stage.rig.client.vms.list()).toEqual([]);
  });

  test("is told of a tool that does not exist", async () => {
    const { code } = await inspect("unknown", "--method", "tools/call", "--tool-name", "capsem_suspend");
    expect(code).toBe(5);
  });
});
