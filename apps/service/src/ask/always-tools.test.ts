import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  applyEdits,
  compileSnapshot,
  decide,
  emptyLayer,
  type Integrity,
  label,
  labelFields,
  mcpToolRule,
  type PolicyEdit,
  type PolicySnapshot,
  parseLayer,
  securityEvent,
} from "@capsem/policy";
import { afterEach, beforeEach, expect, test } from "vitest";
import { holdAsk } from "../mcp/guest-asks.ts";
import { sha256 } from "../policy/policy-state.ts";
import { actContextOf } from "../testing/act-context.ts";
import { AskRig, settled, VM } from "../testing/ask-rig.ts";
import type { AskBook } from "./ask-book.ts";

const ASK = '[profiles.rules.guard]\naction = "ask"\npriority = 20\nmatch = ';
const CALLS = 'event.type == "mcp.tool_call" && mcp.server.name == "tracker"';

let folder: string;
let rig: AskRig;
let book: AskBook;
let userText: string;
let written: PolicyEdit[];
let count: number;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "always-tools-"));
  rig = new AskRig(folder);
  written = [];
  count = 0;
  rig.writeRule = async (_context, edit) => void written.push(edit);
  book = await rig.open();
});
afterEach(async () => {
  await book.close();
  rmSync(folder, { recursive: true });
});

function snapshot(): PolicySnapshot {
  const parsed = parseLayer("user", userText);
  if (parsed.kind !== "ok") throw new Error(JSON.stringify(parsed));
  const edited = applyEdits({ user: parsed.value, corp: emptyLayer("corp") }, written);
  if (edited.kind !== "ok") throw new Error(JSON.stringify(edited));
  return compileSnapshot({ user: edited.value }, sha256);
}

/** What an agent that has seen nothing yet, or an answer of these servers, brings to its next call. */
const seen = (integrity: Integrity, ...servers: string[]) =>
  label(
    "public",
    integrity,
    servers.map((server) => `mcp:${server}`),
  );

function callWith(own: ReturnType<typeof label>) {
  count += 1;
  return securityEvent(
    "mcp.tool_call",
    { event_id: count.toString(16).padStart(12, "0") },
    {
      ...labelFields(own),
      ...{ "vm.id": VM.id, "vm.name": "dev", "process.name": "agent", "mcp.transport": "framed" },
      ...{ "mcp.server.name": "tracker", "mcp.server.external": true, "mcp.server.pinned": true },
      ...{ "mcp.tool_call.name": "create", "mcp.request.arguments": { text: "a" } },
    },
  );
}

/** Whether a call waits for a person; one that does is left waiting. */
async function isAsked(own: ReturnType<typeof label>, isLater = false): Promise<boolean> {
  const event = callWith(own);
  const decision = decide(snapshot(), event);
  if (decision.action !== "ask") return false;
  const before = book.list("pending").length;
  const held = holdAsk(
    { asks: book, snapshot, digestKey: Buffer.alloc(32, 7) },
    {
      ...{
        event: { ...event.toJSON() },
        decision: { ...decision, changes: [] },
        title: "tracker create",
        is_later: isLater,
      },
      who: {
        ...{ event_id: event.identity.event_id, requester: "guest", client: null, token_id: null },
        ...{ trace_id: null, turn_id: null, time_ms: 0 },
      },
    },
    VM,
    { signal: new AbortController().signal, timeLeftMs: 300_000, trace: "" },
  );
  void held.catch(() => undefined);
  await settled();
  return book.list("pending").length > before;
}

async function approve(scope: "once" | "vm" | "always"): Promise<void> {
  const [ask] = book.list("pending");
  await book.resolve(ask?.id ?? "", { approve: true, scope }, actContextOf());
  await settled();
}

const PERMIT = mcpToolRule("tracker", "create", "ask", sha256);

test.each([
  ["a rule of one's own", "vm", `${ASK}'${CALLS}'`],
  ["a rule of one's own", "always", `${ASK}'${CALLS}'`],
  ["mcp permit ask", "vm", ""],
  ["mcp permit ask", "always", ""],
] as const)(
  "%s that is answered for %s does not ask about the next call of the same kind, which has seen the answer",
  async (_, scope, text) => {
    userText = text;
    if (text === "" && PERMIT !== undefined) written.push(PERMIT);
    expect(await isAsked(seen("trusted"))).toBe(true);
    await approve(scope);
    expect(await isAsked(seen("trusted"))).toBe(false);
    expect(await isAsked(seen("untrusted", "tracker"))).toBe(false);
    expect(await isAsked(seen("untrusted", "other", "tracker"))).toBe(false);
  },
);

test("an approval that waits for a retry serves it, whatever its agent has seen in between", async () => {
  userText = `${ASK}'${CALLS}'`;
  expect(await isAsked(seen("trusted"), true)).toBe(true);
  await approve("once");
  expect(await isAsked(seen("untrusted", "tracker"))).toBe(false);
  expect(await isAsked(seen("untrusted", "tracker"))).toBe(true);
});

test.each(["vm", "always"] as const)(
  "where the rule that asked looks at the label, an approval for %s holds for no more tainted a call",
  async (scope) => {
    userText = `${ASK}'${CALLS} && (tainted(label, "untrusted") || mcp.tool_call.name == "create")'`;
    expect(await isAsked(seen("trusted"))).toBe(true);
    await approve(scope);
    expect(await isAsked(seen("trusted"))).toBe(false);
    expect(await isAsked(seen("untrusted", "tracker"))).toBe(true);
    await approve(scope);
    // The level is what it asked about, and not where it came from.
    expect(await isAsked(seen("untrusted", "other", "tracker"))).toBe(false);
  },
);

test.each(["vm", "always"] as const)(
  "where it looks at the sources, an approval for %s holds for no further one",
  async (scope) => {
    userText = `${ASK}'${CALLS} && label.sources.all(each, each != "")'`;
    expect(await isAsked(seen("untrusted", "tracker"))).toBe(true);
    await approve(scope);
    expect(await isAsked(seen("untrusted", "tracker"))).toBe(false);
    expect(await isAsked(seen("untrusted", "mail", "tracker"))).toBe(true);
  },
);

test("an approval for always overrules no rule that keeps tainted calls out", async () => {
  const BLOCK = '[profiles.rules.no-taint]\naction = "block"\npriority = 20\nmatch = ';
  userText = `${ASK}'${CALLS}'\n${BLOCK}'${CALLS} && label.integrity == "untrusted"'`;
  expect(await isAsked(seen("trusted"))).toBe(true);
  await approve("always");
  const decided = (own: ReturnType<typeof label>) => decide(snapshot(), callWith(own)).action;
  expect(decided(seen("trusted"))).toBe("allow");
  expect(decided(seen("untrusted"))).toBe("block");
  // What is built in keeps secrets from servers; it comes after every rule of the user's.
  expect(decided(label("secret", "trusted"))).not.toBe("allow");
});
