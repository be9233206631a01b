import type { ExecResult, TimelinePage, VmInfo } from "@capsem/api";
import { Client, type ElicitRequestFormParams, type ElicitResult } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Connected, connectedOf, ERAS, type Era } from "../apps/mcp/src/testing/connected.ts";
import { type Program, packProgram } from "../apps/mcp/src/testing/program.ts";
import { type Gateway, type Rig, startRig } from "./support/rig.ts";

const RULE = "profiles.rules.deploy";
const COMMAND = "echo deployed >> deploys; wc -l < deploys";

let rig: Rig;
let gateway: Gateway;
let program: Program;
beforeAll(async () => {
  program = packProgram();
  rig = await startRig({
    pool: 1,
    rules: [
      `[${RULE}]`,
      'action = "ask"',
      `match = 'process.command.contains("deployed")'`,
      'reason = "deployments need a person"',
    ].join("\n"),
  });
  gateway = await rig.startGateway();
});
afterAll(async () => {
  await rig?.stop();
  program?.close();
});

/** What the client's user does with the next forms, in their order. */
const answers: ElicitResult[] = [];
const forms: ElicitRequestFormParams[] = [];

/** The packed program behind the official client, whose user has forms. */
async function connect(era: Era): Promise<Connected> {
  const pinned = era === "2026-07-28" ? { versionNegotiation: { mode: { pin: era } } } : {};
  const client = new Client(
    { name: "editor", version: "1" },
    { capabilities: { elicitation: { form: {} } }, ...pinned },
  );
  client.setRequestHandler("elicitation/create", ({ params }) => {
    forms.push(params as ElicitRequestFormParams);
    const answer = answers.shift();
    if (answer === undefined) throw new Error("a form that nobody expected");
    return answer;
  });
  const args = [program.path, "--gateway-url", gateway.url, "--token-file", gateway.tokenFile];
  await client.connect(new StdioClientTransport({ command: process.execPath, args }));
  expect(client.getNegotiatedProtocolVersion()).toBe(era);
  await client.listTools();
  return connectedOf(client);
}

describe.each(ERAS)("a command that a rule asks about (%s)", (era) => {
  let mcp: Connected;
  let call: { readonly vm_id: string; readonly command: string; readonly timeout_secs: number };
  beforeEach(async () => {
    mcp = await connect(era);
    const { id: vm_id } = await mcp.value<VmInfo>("capsem_create");
    call = { vm_id, command: COMMAND, timeout_secs: 30 };
  });
  afterEach(async () => {
    await mcp.value("capsem_delete", { vm_id: call.vm_id });
    await mcp.close();
    expect(answers.splice(0)).toEqual([]);
    forms.length = 0;
  });

  /** How often it ran in the VM; this command is asked about by no rule. */
  const ran = async () => {
    const { stdout } = await mcp.value<ExecResult>("capsem_exec", {
      ...call,
      command: "cat deploys 2>/dev/null | wc -l",
    });
    return Number(stdout.data);
  };
  /** The asks of the VM's ledger, the oldest first. */
  const story = async () => {
    const args = { vm_id: call.vm_id, layers: ["ask"] };
    const { entries } = await mcp.value<TimelinePage>("capsem_timeline", args);
    return [...entries].reverse();
  };

  test("runs in the VM once its user has approved the form, exactly once, and the ledger says who did", async () => {
    answers.push({ action: "accept", content: { decision: "once", note: "go ahead" } });
    expect(await mcp.value<ExecResult>("capsem_exec", call)).toMatchObject({
      exit_code: 0,
      stdout: { data: "1\n" },
    });
    expect(await ran()).toBe(1);
    expect(forms).toHaveLength(1);
    expect(forms[0]?.message).toContain("echo deployed");
    expect(forms[0]?.message).toContain(`${RULE}: deployments need a person`);
    const [pending, approved, ...used] = await story();
    expect(pending).toMatchObject({
      ...{ title: `ask pending: ${COMMAND}`, rule_id: RULE },
      requester: expect.stringMatching(/^gateway \(token [0-9a-f]{8}\)$/),
      details: { resolver: null },
    });
    const ended = {
      title: `ask approved: ${COMMAND}`,
      rule_id: RULE,
      reason: "answered in the conversation: go ahead",
      details: {
        ask_id: pending?.details.ask_id,
        scope: "once",
        resolver: expect.stringMatching(/^gateway, client capsem-mcp\/\S+ \(editor 1\), token [0-9a-f]{8}$/),
      },
    };
    expect(approved).toMatchObject(ended);
    // The call that it served is another act than the one that was asked about.
    expect(used).toMatchObject([ended]);
    expect(used[0]?.event_id).not.toBe(approved?.event_id);

    // It served once: the same command is asked about again.
    answers.push({ action: "decline" });
    expect(await mcp.failure("capsem_exec", call)).toMatchObject({ kind: "policy", retryable: false });
    expect(await ran()).toBe(1);
  });

  test("does not run where its user declines, and the ledger has the denial", async () => {
    answers.push({ action: "decline" });
    const failure = await mcp.failure("capsem_exec", call);
    expect(failure).toMatchObject({ kind: "policy", status: 403, rule_id: RULE, retryable: false });
    expect(failure.reason).toContain("the user refused it");
    expect(await ran()).toBe(0);
    expect(await story()).toMatchObject([
      { title: `ask pending: ${COMMAND}` },
      { title: `ask denied: ${COMMAND}`, details: { ask_id: failure.ask_id, scope: null } },
    ]);
  });

  test("waits where the form is closed without an answer, and goes on once approved at a terminal", async () => {
    answers.push({ action: "cancel" });
    const failure = await mcp.failure("capsem_exec", call);
    expect(failure).toMatchObject({ kind: "policy", retryable: true });
    const [, words = ""] = /capsem (asks approve \S+),/.exec(failure.reason) ?? [];
    expect(words).toBe(`asks approve ${failure.ask_id}`);
    expect(await ran()).toBe(0);
    expect(await rig.cli(words.split(" "))).toMatchObject({ code: 0 });
    expect(await mcp.value<ExecResult>("capsem_exec", call)).toMatchObject({ stdout: { data: "1\n" } });
    expect(await ran()).toBe(1);
    expect(forms).toHaveLength(1);
    expect((await story()).map(({ title }) => title)).toEqual([
      `ask pending: ${COMMAND}`,
      `ask approved: ${COMMAND}`,
      `ask approved: ${COMMAND}`,
    ]);
  });

  test("runs without more forms where it was approved for its VM, and is asked about in another", async () => {
    answers.push({ action: "accept", content: { decision: "vm" } });
    for (let times = 1; times <= 3; times += 1)
      expect(await mcp.value<ExecResult>("capsem_exec", call)).toMatchObject({
        stdout: { data: `${times}\n` },
      });
    expect(forms).toHaveLength(1);
    answers.push({ action: "accept", content: { decision: "deny", note: "not there" } });
    const other = await mcp.value<VmInfo>("capsem_create");
    const failure = await mcp.failure("capsem_exec", { ...call, vm_id: other.id });
    expect(failure.reason).toContain("(not there)");
    await mcp.value("capsem_delete", { vm_id: other.id });
  });
});
