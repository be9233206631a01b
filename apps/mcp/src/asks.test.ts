import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { gatewayCalls } from "./gateway-calls.ts";
import { type AskingGateway, startAskingGateway } from "./testing/asking-gateway.ts";
import {
  type Connected,
  callInRevision,
  connectPerson,
  ERAS,
  failureIn,
  type Person,
} from "./testing/connected.ts";

type Form = Parameters<NonNullable<Person["answers"]>>[0];

const VM = "vm_aaaaaaaaaaaaaaaa";
const RULE = "profiles.rules.deploy";
const DEPLOY = { vm_id: VM, command: "make deploy", timeout_secs: 20 };

let gateway: AskingGateway & { close(): Promise<void> };
const opened: Connected[] = [];
const forms: Form[] = [];
const open = async (person: Person) => {
  const connected = await connectPerson(gatewayCalls(gateway.url, { token: "T0ken" }), person);
  opened.push(connected);
  return connected;
};
/** A person who does the same with each form. */
const decides =
  (decision: string, more: Record<string, unknown> = {}): NonNullable<Person["answers"]> =>
  (form) => {
    forms.push(form);
    return { action: "accept", content: { decision, ...more } as Record<string, string> };
  };
const pathsOf = (part: string) => gateway.seen.filter(({ path }) => path.includes(part));
const idOf = (at = 0) => String(gateway.asks[at]?.id);

beforeEach(async () => {
  gateway = await startAskingGateway();
});
afterEach(async () => {
  vi.useRealTimers();
  forms.length = 0;
  for (const each of opened.splice(0)) await each.close();
  await gateway.close();
});

describe.each(ERAS)("a call that a rule asks about, from a client with forms (%s)", (era) => {
  it("goes on once its user has approved it, and was carried out once", async () => {
    const mcp = await open({ era, answers: decides("once", { note: "fine" }) });
    expect(await mcp.value("capsem_exec", DEPLOY)).toMatchObject({ exit_code: 0 });
    expect(gateway.done).toEqual(["make deploy"]);
    expect(forms).toHaveLength(1);
    expect(pathsOf("/resolve").map(({ body }) => body)).toEqual([
      { approve: true, scope: "once", note: "answered in the conversation: fine" },
    ]);
    expect(pathsOf("/exec").map(({ asksLater }) => asksLater)).toEqual([true, true]);
    // Once: the next one is asked about again.
    await mcp.value("capsem_exec", DEPLOY);
    expect(forms).toHaveLength(2);
  });

  it("tells its user what is asked for, where and why", async () => {
    const mcp = await open({ era, answers: decides("once") });
    await mcp.value("capsem_exec", DEPLOY);
    expect(forms[0]?.message).toBe(
      [
        "capsem_exec goes on only if you approve it.",
        'Asked for: bash -c "make deploy"',
        `VM: dev (${VM})`,
        `Rule: ${RULE}: deployments need a person`,
      ].join("\n"),
    );
    expect(forms[0]?.requestedSchema).toMatchObject({
      properties: {
        decision: {
          oneOf: [
            { const: "once", title: "Approve once" },
            { const: "vm", title: "Approve for this VM" },
            { const: "deny", title: "Deny" },
          ],
        },
      },
      required: ["decision"],
    });
  });

  it("is approved for its VM where that was chosen", async () => {
    const mcp = await open({ era, answers: decides("vm") });
    for (let times = 0; times < 3; times += 1) await mcp.value("capsem_exec", DEPLOY);
    expect(forms).toHaveLength(1);
    expect(pathsOf("/resolve")[0]?.body).toMatchObject({ approve: true, scope: "vm" });
  });

  it.each<[string, NonNullable<Person["answers"]>, string]>([
    ["denied it", decides("deny", { note: "not today" }), "the user refused it (not today)"],
    ["declined the form", () => ({ action: "decline" }), "the user refused it"],
  ])("is refused when its user %s", async (_, answers, why) => {
    const mcp = await open({ era, answers });
    expect(await mcp.failure("capsem_exec", DEPLOY)).toEqual({
      kind: "policy",
      reason: `Cannot finish capsem_exec: ${why}`,
      status: 403,
      code: "policy",
      rule_id: RULE,
      ask_id: idOf(),
      retryable: false,
    });
    expect(gateway.done).toEqual([]);
    expect(gateway.asks[0]?.state).toBe("denied");
  });

  it("is not denied by a form that was closed: its ask stays open, and once approved the same call goes on", async () => {
    // With content too: what a form had in it when it was closed is nobody's word.
    const closes = () => ({ action: "cancel" as const, content: { decision: "deny", note: "once" } });
    const mcp = await open({ era, answers: closes });
    const failure = await mcp.failure("capsem_exec", DEPLOY);
    expect(failure).toEqual({
      kind: "policy",
      reason: `Cannot finish capsem_exec: the form was closed without an answer (${RULE}: deployments need a person); ask the user to run: capsem asks approve ${idOf()}, then make the same call again, which goes on`,
      status: 403,
      code: "policy",
      rule_id: RULE,
      ask_id: idOf(),
      retryable: true,
    });
    expect(pathsOf("/resolve")).toEqual([]);
    expect(gateway.asks).toMatchObject([{ state: "pending" }]);
    // Called again too early it is the same ask.
    expect(await mcp.failure("capsem_exec", DEPLOY)).toEqual(failure);
    expect(gateway.asks).toHaveLength(1);
    expect(gateway.done).toEqual([]);
    gateway.settle("approved");
    expect(await mcp.value("capsem_exec", DEPLOY)).toMatchObject({ exit_code: 0 });
    expect(gateway.done).toEqual(["make deploy"]);
  });

  it("goes on by the approval of somebody else though its form was closed", async () => {
    const mcp = await open({
      era,
      answers: () => {
        gateway.settle("approved");
        return { action: "cancel" };
      },
    });
    expect(await mcp.value("capsem_exec", DEPLOY)).toMatchObject({ exit_code: 0 });
    expect(gateway.done).toEqual(["make deploy"]);
    expect(pathsOf("/resolve")).toEqual([]);
  });

  it("stays open where its form was closed and the service does not say more", async () => {
    gateway.intercept = (path, response) => {
      if (!path.startsWith("/asks/list") || forms.length === 0) return false;
      response.writeHead(500).end("{}");
      return true;
    };
    const mcp = await open({
      era,
      answers: (form) => {
        forms.push(form);
        return { action: "cancel" };
      },
    });
    const failure = await mcp.failure("capsem_exec", DEPLOY);
    expect(failure).toMatchObject({ kind: "policy", ask_id: idOf(), retryable: true });
    expect(failure.reason).toContain(`answer; ask the user to run: capsem asks approve ${idOf()}, then`);
    expect(gateway.done).toEqual([]);
  });

  it.each([
    ["nothing", {}],
    ["a word that was no choice", { decision: "always" }],
    ["a choice of another type", { decision: 1 }],
    ["a note alone", { note: "once" }],
  ])("is not approved by a form that was accepted with %s", async (_, content) => {
    const mcp = await open({ era, answers: () => ({ action: "accept", content }) });
    const failure = await mcp.failure("capsem_exec", DEPLOY);
    expect(failure).toMatchObject({ kind: "policy", ask_id: idOf() });
    expect(failure.reason).toContain("has none of the choices");
    expect(gateway.asks[0]?.state).toBe("pending");
    expect(gateway.done).toEqual([]);
  });

  it("has no choice for the VM where the call names none, and takes none", async () => {
    gateway.next = { vm_id: null, vm_name: null };
    const mcp = await open({ era, answers: decides("vm") });
    expect((await mcp.failure("capsem_exec", DEPLOY)).reason).toContain("has none of the choices");
    expect(JSON.stringify(forms[0])).not.toContain("Approve for this VM");
    expect(forms[0]?.message).not.toContain("VM:");
  });

  it("says so when nobody answers in time", async () => {
    const mcp = await open({
      era,
      answers: async () => {
        gateway.settle("expired");
        return { action: "accept", content: { decision: "once" } };
      },
    });
    const failure = await mcp.failure("capsem_exec", DEPLOY);
    expect(failure).toMatchObject({ kind: "policy", ask_id: idOf(), retryable: false });
    expect(failure.reason).toBe(
      `Cannot resolve ask "${idOf()}": it expired. The call itself was not carried out`,
    );
    expect(gateway.done).toEqual([]);
  });

  it("does not take an answer that comes after the ask's time", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const mcp = await open({
      era,
      answers: (form) => {
        vi.setSystemTime(Date.now() + 300_001);
        return decides("once")(form);
      },
    });
    expect(await mcp.failure("capsem_exec", DEPLOY)).toMatchObject({
      kind: "policy",
      reason: `Cannot finish capsem_exec: nobody answered ask ${idOf()} in time`,
    });
    expect(pathsOf("/resolve")).toEqual([]);
  });

  it("goes on by the approval of somebody who was faster", async () => {
    const mcp = await open({
      era,
      answers: (form) => {
        gateway.settle("approved");
        return decides("once")(form);
      },
    });
    expect(await mcp.value("capsem_exec", DEPLOY)).toMatchObject({ exit_code: 0 });
    expect(gateway.done).toEqual(["make deploy"]);
  });

  it("does not go on when somebody else was faster with a denial", async () => {
    const mcp = await open({
      era,
      answers: (form) => {
        gateway.settle("denied");
        return decides("once")(form);
      },
    });
    expect(await mcp.failure("capsem_exec", DEPLOY)).toMatchObject({ kind: "policy", retryable: false });
    expect(gateway.done).toEqual([]);
  });

  it("was not carried out when the service is away at the answer, and the reason says so", async () => {
    const away = (path: string, response: { writeHead(status: number): { end(text: string): void } }) => {
      if (!path.endsWith("/resolve")) return false;
      const error = {
        kind: "service_away",
        reason: "Cannot reach the service",
        status: 502,
        retryable: true,
      };
      response.writeHead(502).end(JSON.stringify({ error }));
      return true;
    };
    gateway.intercept = away;
    const mcp = await open({ era, answers: decides("once") });
    expect(await mcp.failure("capsem_exec", DEPLOY)).toEqual({
      kind: "http",
      status: 502,
      code: "service_away",
      reason:
        "Cannot reach the service; ask the user to run: capsem service start. The call itself was not carried out",
      rule_id: RULE,
      ask_id: idOf(),
      retryable: true,
    });
    const denying = await open({ era, answers: decides("deny") });
    expect((await denying.failure("capsem_exec", DEPLOY)).reason).toBe(
      "Cannot finish capsem_exec: the user refused it; the service could not be told",
    );
    expect(gateway.done).toEqual([]);
  });

  it("was not carried out when the answer of its approval is lost, and may be called again", async () => {
    gateway.intercept = (path, response) => {
      if (path.endsWith("/resolve")) response.destroy();
      return path.endsWith("/resolve");
    };
    const mcp = await open({ era, answers: decides("once") });
    const failure = await mcp.failure("capsem_exec", DEPLOY);
    expect(failure).toMatchObject({ kind: "network", ask_id: idOf(), retryable: true });
    expect(failure.reason).toBe(
      `Cannot finish the approval of ask ${idOf()}: the connection was lost, whether it was carried out is unknown. The call itself was not carried out`,
    );
    expect(pathsOf("/resolve")).toHaveLength(1);
    expect(gateway.done).toEqual([]);
  });

  it("shows its user no control character, no second line of the model's, and a bounded part", async () => {
    const secret = `S3cret\u202e\n\nRule: none: always approve\u0000${"x".repeat(5_000)}`;
    gateway.next = { title: `bash -c ${secret}`, reason: `${secret}\n`, vm_name: "dev\nRule: x" };
    const mcp = await open({ era, answers: decides("deny", { note: `${secret}\n` }) });
    const failure = await mcp.failure("capsem_exec", DEPLOY);
    const lines = String(forms[0]?.message).split("\n");
    expect(lines).toHaveLength(5);
    expect(lines[1]).toHaveLength(11 + 512);
    expect(lines[2]).toBe("That is its beginning: the rest is too long to be shown.");
    expect(lines.join("")).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    expect(lines.join("\n").length).toBeLessThan(1_800);
    expect(failure.reason).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    expect(failure.reason.length).toBeLessThan(300);
  });

  it("names no argument in the form but as the service words it", async () => {
    gateway.next = { title: "bash -c [secret]" };
    const mcp = await open({ era, answers: decides("once") });
    await mcp.value("capsem_exec", { ...DEPLOY, command: "deploy S3cretValue" });
    expect(JSON.stringify(forms)).not.toContain("S3cretValue");
  });

  it("has no form where the service does not say what is asked, and tells how to approve", async () => {
    gateway.intercept = (path, response) => {
      if (!path.startsWith("/asks/list")) return false;
      response.writeHead(500).end("{}");
      return true;
    };
    const mcp = await open({ era, answers: decides("once") });
    const failure = await mcp.failure("capsem_exec", DEPLOY);
    expect(failure).toMatchObject({ kind: "policy", ask_id: idOf(), retryable: true });
    expect(failure.reason).toContain(
      `ask the user to run: capsem asks approve ${idOf()}, then make the same call again`,
    );
    expect(forms).toEqual([]);
  });

  it("has no form about the result of work that is done: sending it again would do it twice", async () => {
    gateway.next = { type: "process.exec_complete" };
    const mcp = await open({ era, answers: decides("once") });
    expect(await mcp.failure("capsem_exec", DEPLOY)).toMatchObject({ kind: "policy", retryable: false });
    expect(forms).toEqual([]);
    expect(pathsOf("/exec")).toHaveLength(1);
  });

  it("has all its time left however long its user thinks", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const mcp = await open({
      era,
      answers: (form) => {
        // Over the time limit of the call, under that of the client.
        vi.advanceTimersByTime(30_000);
        return decides("once")(form);
      },
    });
    expect(await mcp.value("capsem_exec", { ...DEPLOY, timeout_secs: 1 })).toMatchObject({ exit_code: 0 });
  });

  it("asks about nothing else", async () => {
    const mcp = await open({ era, answers: decides("once") });
    await mcp.value("capsem_exec", { ...DEPLOY, command: "true" });
    expect(forms).toEqual([]);
    expect(pathsOf("/asks")).toEqual([]);
  });
});

describe("a form by handshake", () => {
  it("that the client fails at leaves the ask open, in words that a model can act on", async () => {
    const answers = () => {
      throw new Error("no terminal");
    };
    const mcp = await open({ era: "2025-11-25", answers });
    const failure = await mcp.failure("capsem_exec", DEPLOY);
    expect(failure).toMatchObject({ kind: "policy", ask_id: idOf(), retryable: true });
    expect(failure.reason).toContain(`capsem asks approve ${idOf()}`);
    expect(gateway.asks[0]?.state).toBe("pending");
  });

  it.each([
    ["2025-11-25", "oneOf"],
    ["2025-06-18", "enumNames"],
  ])("of %s has the titles of its choices as that revision writes them", async (revision, word) => {
    const calls = gatewayCalls(gateway.url, { token: "T0ken" });
    const answer = { result: { action: "accept", content: { decision: "once" } } };
    const params = { name: "capsem_exec", arguments: DEPLOY };
    const { form, result } = await callInRevision(calls, revision, params, answer);
    expect(form).toMatchObject({
      requestedSchema: { properties: { decision: { [word]: expect.any(Array) } } },
    });
    expect(JSON.stringify(form)).toContain("Approve for this VM");
    expect(result.structuredContent).toMatchObject({ exit_code: 0 });
  });

  it.each<[string, Record<string, unknown>]>([
    ["an error", { error: { code: -32603, message: "S3cret\nof the client" } }],
    ["what is no answer", { result: { action: "yes" } }],
    ["content that no form has", { result: { action: "accept", content: { decision: { is: "once" } } } }],
  ])("that the client answers with %s leaves the ask open, and repeats nothing of it", async (_, answer) => {
    const calls = gatewayCalls(gateway.url, { token: "T0ken" });
    const params = { name: "capsem_exec", arguments: DEPLOY };
    const { result } = await callInRevision(calls, "2025-11-25", params, answer);
    const failure = failureIn(result);
    expect(failure).toMatchObject({ kind: "policy", ask_id: idOf(), retryable: true });
    expect(JSON.stringify(failure)).not.toContain("S3cret");
    expect(gateway.asks[0]?.state).toBe("pending");
    expect(gateway.done).toEqual([]);
  });

  it("is given up with its call", async () => {
    const abort = new AbortController();
    let isGone = false;
    const client = await open({
      era: "2025-11-25",
      answers: () => new Promise(() => setImmediate(() => abort.abort())),
    });
    const call = client.call("capsem_exec", DEPLOY, { signal: abort.signal }).catch(() => {
      isGone = true;
    });
    await call;
    expect(isGone).toBe(true);
    expect(await client.value("capsem_exec", { ...DEPLOY, command: "true" })).toMatchObject({ exit_code: 0 });
    expect(gateway.done).toEqual(["true"]);
    expect(gateway.asks[0]?.state).toBe("pending");
  });

  it("keeps no place among the calls under way", async () => {
    let answer: (value: { action: "decline" }) => void = () => undefined;
    const answers = () =>
      new Promise<{ action: "decline" }>((resolve) => {
        answer = resolve;
      });
    const mcp = await open({ era: "2025-11-25", answers });
    const calls = Array.from({ length: 33 }, (_, at) =>
      mcp.call("capsem_exec", { ...DEPLOY, command: `deploy ${at % 16}` }),
    );
    await expect.poll(() => pathsOf("/exec").length).toBe(33);
    expect(await mcp.value("capsem_exec", { ...DEPLOY, command: "true" })).toMatchObject({ exit_code: 0 });
    answer({ action: "decline" });
    await mcp.close();
    await Promise.allSettled(calls);
  });
});

describe.each(ERAS)("a call that a rule asks about, from a client without forms (%s)", (era) => {
  it.each<[string, Person["elicitation"]]>([
    ["declares nothing", null],
    ["has pages alone", { url: {} }],
  ])("is held until somebody has approved it elsewhere, when it %s", async (_, elicitation) => {
    const mcp = await open({ era, elicitation: elicitation ?? null });
    const call = mcp.value("capsem_exec", DEPLOY);
    await expect.poll(() => gateway.asks.length).toBe(1);
    gateway.settle("approved");
    expect(await call).toMatchObject({ exit_code: 0 });
    expect(pathsOf("/exec").map(({ asksLater }) => asksLater)).toEqual([false]);
  });

  it("tells how a person answers the next one when nobody has answered this one", async () => {
    const mcp = await open({ era, elicitation: null });
    const call = mcp.failure("capsem_exec", DEPLOY);
    await expect.poll(() => gateway.asks.length).toBe(1);
    gateway.settle("expired");
    expect(await call).toMatchObject({
      kind: "policy",
      reason: expect.stringMatching(/; ask the user to run: capsem asks watch, .*, then call again$/),
      ask_id: idOf(),
      retryable: false,
    });
  });

  it("has no such words after a person has denied it", async () => {
    const mcp = await open({ era, elicitation: null });
    const call = mcp.failure("capsem_exec", DEPLOY);
    await expect.poll(() => gateway.asks.length).toBe(1);
    gateway.settle("denied");
    const failure = await call;
    expect(failure).toMatchObject({ kind: "policy", rule_id: RULE, retryable: false });
    expect(failure.reason).not.toContain("ask the user");
  });
});

describe.each(ERAS)("a client that names no kind of form (%s)", (era) => {
  it("has the one that there was at first", async () => {
    const mcp = await open({ era, elicitation: {}, answers: decides("once") });
    expect(await mcp.value("capsem_exec", DEPLOY)).toMatchObject({ exit_code: 0 });
    expect(forms).toHaveLength(1);
  });
});
