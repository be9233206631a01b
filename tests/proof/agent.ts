import { TOOLS } from "@capsem/api";
import { expect } from "vitest";
import type { ClientHome, ProgramName } from "./clients.ts";
import { type ProgramEnd, type ProgramOptions, runProgram } from "./program.ts";
import type { Connection, Stage } from "./stage.ts";
import { startStubModel } from "./stub-model.ts";
import { LAST_WORDS, type StubPlan, type StubTurn } from "./stub-plan.ts";
import { revisionOf } from "./wire-log.ts";

/** How one agent CLI is told of a model and of capsem-mcp, and how it names the tools of the server "capsem". */
export interface Agent {
  readonly name: ProgramName & ("claude" | "codex" | "gemini");
  readonly prefix: string;
  /** What it says of itself on the wire: its client and version. */
  readonly client: string;
  /** The revision that it calls tools at. */
  readonly revision: string;
  /** Writes what the agent must know of its model; arguments and environment of the program. */
  prepare(home: ClientHome, modelUrl: string): AgentCommand;
  /** Writes the server into the agent's configuration by hand; more arguments that this needs. */
  configure(home: ClientHome, server: Pick<Connection, "command" | "args">): readonly string[];
}

export interface AgentCommand {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** How the agent comes to know capsem-mcp, once it knows its model; more arguments that this needs. */
export type SetUp = (home: ClientHome) => readonly string[] | Promise<readonly string[]>;

/** One prompt to an agent, from the start of the program to its end. */
export interface AgentRun {
  readonly end: ProgramEnd;
  readonly turns: readonly StubTurn[];
}

export const PROMPT = "Which kernel does a fresh VM have?";
/** One command in a fresh VM. */
export const UNAME: StubPlan = {
  tool: /capsem_run$/,
  args: { command: "uname -sr", timeout_secs: 60 },
};
/** What a guest prints for it and this machine does not: the kernel is Debian's for clouds. */
const GUEST_KERNEL = /Linux 6\.\S+cloud\S+/;

export async function runAgent(
  { home }: Stage,
  agent: Agent,
  plan: StubPlan,
  setUp: SetUp,
  options: Pick<ProgramOptions, "crash"> = {},
): Promise<AgentRun> {
  const model = await startStubModel(plan);
  try {
    const { args, env } = agent.prepare(home, model.url);
    const words = [...args, ...(await setUp(home))];
    const end = await runProgram(agent.name, words, home, { timeoutMs: 120_000, env, ...options });
    return { end, turns: model.turns };
  } finally {
    await model.stop();
  }
}

/** A real capsem_run of the packed server, and what it was on the wire. */
export async function proveOnTheWire(stage: Stage, agent: Agent): Promise<void> {
  const connection = stage.connect(agent.name);
  const run = await runAgent(stage, agent, UNAME, (home) => agent.configure(home, connection));
  await checkUname(stage, agent, run);
  const wire = await connection.wire();
  expect(wire.methods.filter((method) => method === "tools/call")).toHaveLength(1);
  expect(wire.client).toBe(agent.client);
  expect(revisionOf(wire, "tools/call")).toBe(agent.revision);
  expect(wire.end).toEqual({ code: 0, signal: null });
}

/** A real capsem_run after nothing but `capsem mcp install`. */
export async function proveInstalled(stage: Stage, agent: Agent): Promise<void> {
  const run = await runAgent(stage, agent, UNAME, async (home) => {
    const { code, stderr } = await stage.rig.cli(["mcp", "install", agent.name], {
      env: { HOME: home.path },
    });
    expect(code, stderr).toBe(0);
    return [];
  });
  await checkUname(stage, agent, run);
}

/** From what the agent offered its model, down to a VM that is gone again, and back to what the agent prints. */
async function checkUname(stage: Stage, agent: Agent, { end, turns }: AgentRun): Promise<void> {
  expect(end.code, `${end.stdout}\n${end.stderr}`).toBe(0);
  const asking = turns.find(({ asked }) => asked !== null);
  const offered = asking?.offered.filter((name) => name.startsWith(agent.prefix)) ?? [];
  const declared = Object.keys(TOOLS).map((tool) => agent.prefix + tool);
  expect(offered.sort()).toEqual(declared.sort());
  expect(turns.find(({ result }) => result !== null)?.result).toMatch(GUEST_KERNEL);
  expect(end.stdout).toContain(LAST_WORDS);
  expect(end.stdout).toMatch(GUEST_KERNEL);
  expect(await stage.rig.client.vms.list()).toEqual([]);
}
