import { TOOLS } from "@capsem/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { runProgram } from "./program.ts";
import { skipUnless } from "./skip.ts";
import { openStage, type Stage } from "./stage.ts";
import { revisionOf } from "./wire-log.ts";

const listed = z.object({ result: z.object({ tools: z.array(z.looseObject({ name: z.string() })) }) });
const called = z.object({ result: z.object({ structuredContent: z.unknown() }) });

describe("the MCP Inspector's command line", skipUnless("inspector"), () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openStage();
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

  test("is told of a tool that does not exist", async () => {
    const { code } = await inspect("unknown", "--method", "tools/call", "--tool-name", "capsem_suspend");
    expect(code).toBe(5);
  });
});
