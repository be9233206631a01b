import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../support/rig.ts";
import { type Agent, PROMPT, proveInstalled, proveOnTheWire, runAgent, type SetUp } from "./agent.ts";
import { skipUnless } from "./skip.ts";
import { openVmStage, type Stage, writeMcpConfig } from "./stage.ts";
import type { StubPlan } from "./stub-plan.ts";
import { startToolServer } from "./tool-servers.ts";

const ALLOWED = ["capsem_run", "capsem_info", "capsem_mcp_call"].map((tool) => `mcp__capsem__${tool}`);

const MATCH = 'process.command.contains("curl")';

const CLAUDE: Agent = {
  name: "claude",
  prefix: "mcp__capsem__",
  client: "claude-code 2.1.332",
  revision: "2026-07-28",
  prepare: (_home, modelUrl) => ({
    args: ["-p", PROMPT, "--output-format", "json", "--allowedTools", ALLOWED.join(",")],
    env: {
      ANTHROPIC_BASE_URL: modelUrl,
      ANTHROPIC_API_KEY: "no-account",
      // Else it hides a server's tools from the model until the model searches for them.
      ENABLE_TOOL_SEARCH: "false",
      DISABLE_AUTOUPDATER: "1",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    },
  }),
  configure: (home, server) => ["--mcp-config", writeMcpConfig(home, server), "--strict-mcp-config"],
};

describe("Claude Code", skipUnless("claude", "servers"), () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openVmStage();
  });
  afterAll(() => stage?.close());

  /** What its model is given for the call of a plan. */
  const toldBy = async (plan: StubPlan) => {
    const connection = stage.connect("claude");
    const { end, turns } = await runAgent(stage, CLAUDE, plan, (home) => CLAUDE.configure(home, connection));
    expect(end.code, end.stderr).toBe(0);
    return turns.find(({ result }) => result !== null)?.result;
  };

  test("runs a command in a real VM with capsem_run", () => proveOnTheWire(stage, CLAUDE));

  test("does so after nothing but capsem mcp install", () => proveInstalled(stage, CLAUDE));

  test("tells its model why a call failed", async () => {
    const plan = { tool: /capsem_info$/, args: { vm_id: "vm_aaaaaaaaaaaaaaaa" } };
    const told = await toldBy(plan);
    expect(told).toContain("vm_aaaaaaaaaaaaaaaa");
    expect(told).toContain("404");
  });

  test("tells its model by which rule a call was refused, and why", async () => {
    const reason = "nothing is fetched with curl";
    await stage.rig.client.rules.put("no-curl", { action: "block", match: MATCH, reason });
    const plan = { tool: /capsem_run$/, args: { command: "curl example.com", timeout_secs: 60 } };
    const told = await toldBy(plan);
    for (const words of ["profiles.rules.no-curl", reason, "policy"]) expect(told).toContain(words);
    await stage.rig.client.rules.delete("no-curl");
  });

  test("calls a tool of somebody else's server, through Capsem and its rules", async () => {
    const server = await startToolServer("everything", stage.home);
    try {
      const { host } = new URL(server.fields.url);
      for (const words of [
        ["mcp", "add", "everything", server.fields.url, "--grant", host],
        ["mcp", "refresh", "everything"],
      ]) {
        const { code, stderr } = await stage.rig.cli(words);
        expect(code, stderr).toBe(0);
      }
      const args = { server_id: "everything", tool_id: "echo", arguments: { message: "by way of Capsem" } };
      const plan = { tool: /capsem_mcp_call$/, args };
      expect(await toldBy(plan)).toContain("Echo: by way of Capsem");
      const match = 'mcp.server.name == "everything" && mcp.tool_call.name == "echo"';
      const reason = "nothing is said out loud";
      await stage.rig.client.rules.put("no-echo", { action: "block", match, reason });
      const refused = await toldBy(plan);
      expect(refused).not.toContain("Echo:");
      for (const words of ["profiles.rules.no-echo", reason]) expect(refused).toContain(words);
      await stage.rig.client.rules.delete("no-echo");
    } finally {
      await server.stop();
    }
  });

  test("has nobody to show a form to with -p: the ask stays open, and once approved the same call goes on", async () => {
    await stage.rig.client.rules.put("ask-curl", { action: "ask", match: MATCH, reason: "it reaches out" });
    const plan = { tool: /capsem_run$/, args: { command: "echo curl; uname -sr", timeout_secs: 60 } };
    const told = await toldBy(plan);
    const [ask, ...more] = await stage.rig.client.asks.list({ state: "pending" });
    expect(more).toEqual([]);
    for (const words of ["profiles.rules.ask-curl", "it reaches out", `capsem asks approve ${ask?.id}`])
      expect(told).toContain(words);
    expect(ask?.client).toContain("claude-code");
    expect(await stage.rig.cli(["asks", "approve", String(ask?.id)])).toMatchObject({ code: 0 });
    expect(await toldBy(plan)).toMatch(/curl\\+nLinux 6\.\S+cloud/);
    await stage.rig.client.rules.delete("ask-curl");
  });

  test("crashes in the midst of a capsem_run, and the VM is gone soon after", async () => {
    const crash = new AbortController();
    const running = async () => (await stage.rig.client.vms.list()).some(({ state }) => state === "running");
    const plan = { tool: /capsem_run$/, args: { command: "sleep 300", timeout_secs: 400 } };
    const connection = stage.connect("claude");
    const setUp: SetUp = (home) => CLAUDE.configure(home, connection);
    const run = runAgent(stage, CLAUDE, plan, setUp, { crash: crash.signal });
    await until("the VM of the call runs", 30_000, running);
    crash.abort();
    await run;
    const wire = await connection.wire();
    expect(wire.askedToEnd).toBe("end of input");
    expect(wire.end).toEqual({ code: 0, signal: null });
    await until("the VM is gone", 10_000, async () => (await stage.rig.client.vms.list()).length === 0);
  });
});
