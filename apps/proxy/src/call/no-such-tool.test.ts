import type { ToolPin } from "@capsem/api";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { type RailRig, railRig } from "../testing/rail-rig.ts";
import { type ScriptedServer, tool } from "../testing/scripted-servers.ts";

const servers = (): Record<string, ScriptedServer> => ({
  files: { tools: [tool("read")] },
  dead: {
    look: async () => {
      throw new Failure("upstream_failed", "Cannot reach it: nothing listens there");
    },
  },
});

/** Of the last call: its answer, what was decided of it, and how it ended. */
async function ended(rig: RailRig, name: string) {
  const { error } = await rig.client().call(name);
  await rig.settled();
  const decision = rig.service.decisionsOf("mcp.tool_call").at(-1)?.decision;
  const { outcome, error: recorded, call } = rig.service.calls.at(-1) ?? {};
  return { error, decision, outcome, recorded, call };
}

test.each([
  ["a tool that its server does not have", "files__nope", -32_602, "not_found: Cannot find tool"],
  ["a tool of no server", "none__read", -32_602, "not_found: Cannot find tool"],
  ["a name that is none", "read", -32_602, "not_found: Cannot find tool"],
  ["a tool of a server that nobody has reached", "dead__read", -32_603, "upstream_failed: Cannot reach it"],
])("%s was not changed: its call fails, and nobody is said to be asked", async (_, name, code, words) => {
  const rig = await railRig({ servers: servers() });
  const { error, decision, outcome, recorded, call } = await ended(rig, name);
  expect(error?.code).toBe(code);
  expect(decision).toMatchObject({ action: "allow", detection: "none" });
  expect([outcome, recorded?.startsWith(words), call?.is_pinned]).toEqual(["failed", true, false]);
  expect(rig.service.asks).toEqual([]);
});

test("a server that is switched off is told as such, of its tools, prompts and resources, and by the host's calls", async () => {
  const rig = await railRig({ servers: servers() });
  await rig.declare({ files: servers().files ?? {} }, [], ["dead"]);
  const { error, outcome, recorded } = await ended(rig, "dead__read");
  const text = 'Cannot use tool "dead__read": tool server "dead" is switched off';
  expect([error?.code, error?.message]).toEqual([-32_602, text]);
  expect([outcome, recorded]).toEqual(["failed", `mcp_server_disabled: ${text}`]);
  const client = rig.client();
  const off = expect.stringContaining('tool server "dead" is switched off');
  const prompt = await client.request("prompts/get", { name: "dead__help" });
  const resource = await client.request("resources/read", { uri: "capsem://dead/file:///a" });
  expect([prompt.error?.message, resource.error?.message]).toEqual([off, off]);
  const asked = { server: "dead", tool: "read", arguments: "{}", requester: "user uid 1000" };
  const who = { client: null, token_id: null, trace_id: null, turn_id: null };
  await expect(rig.service.call("tool.call", { ...asked, ...who })).rejects.toMatchObject({
    kind: "mcp_server_disabled",
  });
});

test("a user's own rule that asks asks nobody of a tool that is not there; its call is judged and recorded once", async () => {
  const rules = `[profiles.rules.all]\naction = "ask"\npriority = 20\nmatch = 'event.type == "mcp.tool_call"'\n`;
  const rig = await railRig({ servers: servers(), rules });
  for (const name of ["files__nope", "none__read", "read", "dead__read"]) {
    const before = rig.service.calls.length;
    const { outcome, recorded, decision } = await ended(rig, name);
    expect([rig.service.calls.length - before, outcome, rig.service.asks]).toEqual([1, "failed", []]);
    expect(recorded).toMatch(/^(not_found|upstream_failed): /);
    expect(decision).toMatchObject({ action: "ask", rule_id: "profiles.rules.all" });
  }
});

test("a rule blocks what is not there as well", async () => {
  const rules = `[profiles.rules.nope]\naction = "block"\nmatch = 'mcp.tool_call.name == "nope"'\n`;
  const rig = await railRig({ servers: servers(), rules });
  const { error, outcome } = await ended(rig, "files__nope");
  expect([error?.data?.rule_id, outcome]).toEqual(["profiles.rules.nope", "blocked"]);
});

test("a tool that is gone is not found; one that has come is asked about, also by a proxy that has not seen it yet", async () => {
  const all = servers();
  const rig = await railRig({ servers: all });
  const client = rig.client();
  await client.request("tools/list");
  const pin = (name: string, state: ToolPin["state"]): ToolPin => ({
    ...{ server: "files", tool: name, state, approved: null },
    approved_hash: state === "new" ? null : "0".repeat(64),
  });
  const pins = [pin("read", "gone"), pin("write", "new")];
  for (const each of pins) rig.service.pins.set(`files ${each.tool}`, each);
  all.files = { tools: [tool("write")] };
  await rig.declare(all, pins);
  const gone = await ended(rig, "files__read");
  expect([gone.error?.code, gone.decision?.action, gone.outcome]).toEqual([-32_602, "allow", "failed"]);
  void client.call("files__write");
  await expect.poll(() => rig.service.asks.length).toBe(1);
  expect(rig.service.asks[0]?.ask.decision.rule_id).toBe("default.changed_tool");
});

test("a changed tool of a server that is away is still a changed one, and its call says what is wrong", async () => {
  const rig = await railRig();
  const changed = { server: "dead", tool: "read", state: "changed", approved: null } as const;
  await rig.declare(servers(), [{ ...changed, approved_hash: "0".repeat(64) }]);
  const { error, decision, outcome } = await ended(rig, "dead__read");
  expect(error?.message).toBe("Cannot reach it: nothing listens there");
  expect([decision?.rule_id, outcome]).toEqual(["default.changed_tool", "failed"]);
  expect(rig.service.asks).toEqual([]);
});
