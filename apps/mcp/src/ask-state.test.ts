import { ROUTES, TOOLS, type Tool } from "@capsem/api";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { gatewayCalls } from "./gateway-calls.ts";
import { CLIENT_NAMES_MAX } from "./limits.ts";
import { type AskingGateway, startAskingGateway } from "./testing/asking-gateway.ts";
import { type CallResult, type Connected, connectPerson, ERAS, failureIn } from "./testing/connected.ts";

const VM = "vm_aaaaaaaaaaaaaaaa";
const DEPLOY = { vm_id: VM, command: "make deploy", timeout_secs: 20 };
const APPROVED = { decision: { action: "accept", content: { decision: "once" } } };

interface Suspended {
  readonly resultType: string;
  readonly requestState: string;
  readonly inputRequests: Readonly<Record<string, { readonly method: string }>>;
}

let gateway: AskingGateway & { close(): Promise<void> };
let mcp: Connected;

beforeEach(async () => {
  gateway = await startAskingGateway();
  mcp = await connectPerson(gatewayCalls(gateway.url, { token: "T0ken" }), { era: "2026-07-28" });
});
afterEach(async () => {
  vi.useRealTimers();
  await mcp.close();
  await gateway.close();
});

/** One round as a client makes it that brings back what it likes. */
async function round(
  args: Record<string, unknown>,
  more: Record<string, unknown> = {},
  name = "capsem_exec",
) {
  const params = { name, arguments: args, ...more };
  return (await mcp.client.request(
    { method: "tools/call", params },
    { allowInputRequired: true },
  )) as unknown;
}
const suspend = async (args: Record<string, unknown> = DEPLOY) => (await round(args)) as Suspended;
const resolutions = () => gateway.seen.filter(({ path }) => path.endsWith("/resolve"));

describe("the state that a client of 2026-07-28 brings back", () => {
  it("is of one form, and with its answer the call goes on", async () => {
    const { resultType, requestState, inputRequests } = await suspend();
    expect(resultType).toBe("input_required");
    expect(Object.values(inputRequests).map(({ method }) => method)).toEqual(["elicitation/create"]);
    // The same arguments in another order are the same call.
    const args = { command: DEPLOY.command, timeout_secs: 20, vm_id: VM };
    const result = (await round(args, { requestState, inputResponses: APPROVED })) as CallResult;
    expect(result.structuredContent).toMatchObject({ exit_code: 0 });
    expect(gateway.done).toEqual(["make deploy"]);
  });

  it.each<[string, Record<string, unknown>, string]>([
    ["another command", { ...DEPLOY, command: "make deploy --all" }, "capsem_exec"],
    ["another VM", { ...DEPLOY, vm_id: "vm_bbbbbbbbbbbbbbbb" }, "capsem_exec"],
    ["another time limit", { ...DEPLOY, timeout_secs: 21 }, "capsem_exec"],
    ["another tool", DEPLOY, "capsem_delete"],
  ])("does not open for %s", async (_, args, name) => {
    const { requestState } = await suspend();
    const call = round(args, { requestState, inputResponses: APPROVED }, name);
    await expect(call).rejects.toMatchObject({
      code: -32602,
      message: expect.stringContaining("requestState"),
    });
    expect(gateway.asks[0]?.state).toBe("pending");
    expect(gateway.done).toEqual([]);
  });

  it("approves no other ask than that of its form", async () => {
    const first = await suspend();
    const other = { ...DEPLOY, command: "deploy --everything" };
    const second = await suspend(other);
    const [, payload = ""] = first.requestState.split(".");
    const [version, , mac] = second.requestState.split(".");
    const forged = [version, payload, mac].join(".");
    for (const requestState of [first.requestState, forged]) {
      const call = round(other, { requestState, inputResponses: APPROVED });
      await expect(call).rejects.toMatchObject({ code: -32602 });
    }
    expect(gateway.asks.map(({ state }) => state)).toEqual(["pending", "pending"]);
    expect(resolutions()).toEqual([]);
  });

  it.each<[string, (state: string) => string]>([
    // Not its last character: of that one some bits mean nothing.
    ["changed", (state) => state.replace(/[^.](?=[^.]*$)/, (first) => (first === "A" ? "B" : "A"))],
    ["cut", (state) => state.slice(0, -3)],
    ["empty", () => ""],
    ["of nothing that we know", () => "v1.e30.AAAA"],
    ["unsealed", (state) => state.split(".").slice(0, 2).join(".")],
  ])("that was %s is refused", async (_, change) => {
    const { requestState } = await suspend();
    const changed = change(requestState);
    const call = round(DEPLOY, { requestState: changed, inputResponses: APPROVED });
    await expect(call).rejects.toMatchObject({ code: -32602 });
    expect(resolutions()).toEqual([]);
    expect(gateway.done).toEqual([]);
  });

  it("of another process is refused", async () => {
    const { requestState } = await suspend();
    const calls = gatewayCalls(gateway.url, { token: "T0ken" });
    const stateKey = () => new Uint8Array(32).fill(7);
    const other = await connectPerson(calls, { era: "2026-07-28", stateKey });
    const params = { name: "capsem_exec", arguments: DEPLOY, requestState, inputResponses: APPROVED };
    await expect(other.client.request({ method: "tools/call", params })).rejects.toMatchObject({
      code: -32602,
    });
    await other.close();
    expect(gateway.done).toEqual([]);
  });

  it("serves once: brought back again, it does not send the call again", async () => {
    const { requestState } = await suspend();
    await round(DEPLOY, { requestState, inputResponses: APPROVED });
    const again = (await round(DEPLOY, { requestState, inputResponses: APPROVED })) as CallResult;
    expect(failureIn(again)).toMatchObject({ kind: "policy", retryable: false });
    expect(gateway.done).toEqual(["make deploy"]);
  });

  it.each<[string, Record<string, unknown>]>([
    ["no answer", {}],
    ["an answer to another form", { inputResponses: { other: APPROVED.decision } }],
    ["an answer that is none", { inputResponses: { decision: { action: "yes" } } }],
    ["an answer of another kind", { inputResponses: { decision: { roots: [] } } }],
  ])("with %s is no approval: the same form comes again", async (_, more) => {
    const { requestState } = await suspend();
    const again = (await round(DEPLOY, { requestState, ...more })) as Suspended;
    expect(again.resultType).toBe("input_required");
    expect(gateway.asks).toHaveLength(1);
    expect(resolutions()).toEqual([]);
  });

  it("is needed: an answer without it approves nothing", async () => {
    expect(((await round(DEPLOY, { inputResponses: APPROVED })) as Suspended).resultType).toBe(
      "input_required",
    );
    expect(resolutions()).toEqual([]);
    expect(gateway.done).toEqual([]);
  });

  it("has no argument of the call in it", async () => {
    const { requestState } = await suspend({ ...DEPLOY, command: "deploy S3cretValue" });
    const [, payload = ""] = requestState.split(".");
    expect(Buffer.from(payload, "base64url").toString()).not.toContain("S3cretValue");
  });
});

describe("a model", () => {
  it("has no tool that leads to the answer of an ask, or lists them", () => {
    const routes = Object.values(TOOLS as Readonly<Record<string, Tool>>).map(({ route }) => route);
    expect(ROUTES.askResolve.path).toMatch(/^\/asks\//);
    expect(routes.filter((route) => ROUTES[route].path.startsWith("/asks"))).toEqual([]);
  });

  it.each(["requestState", "inputResponses", "_meta", "asks", "approve"])(
    "cannot answer by an argument that is named %s",
    async (name) => {
      const result = (await round({ ...DEPLOY, [name]: APPROVED })) as CallResult;
      expect(failureIn(result)).toMatchObject({ kind: "invalid_input" });
      expect(gateway.seen).toEqual([]);
    },
  );
});

describe.each(ERAS)("the name of a client (%s)", (era) => {
  it.each<[string, string]>([
    ["claude-code", "capsem-mcp/0.1.0 (claude-code 1)"],
    ["a) (b", "capsem-mcp/0.1.0 (a b 1)"],
    ["größer\r\nx-evil: 1", "capsem-mcp/0.1.0 (grerx-evil: 1 1)"],
    ["x".repeat(500), `capsem-mcp/0.1.0 (${"x".repeat(109)})`],
    ["ü", "capsem-mcp/0.1.0 (1)"],
  ])("%j reaches the service as its own claim", async (name, header) => {
    const calls = gatewayCalls(gateway.url, { token: "T0ken" });
    const other = await connectPerson(calls, { era, name });
    await other.value("capsem_exec", { ...DEPLOY, command: "true" });
    await other.close();
    expect(gateway.seen.map(({ client }) => client)).toEqual([header]);
    expect(header.length).toBeLessThanOrEqual(128);
  });
});

describe("many clients behind a bridge", () => {
  it("are told apart up to a limit, and above it have no name but this program's", async () => {
    const calls = gatewayCalls(gateway.url, { token: "T0ken" });
    const names = Array.from({ length: CLIENT_NAMES_MAX + 3 }, (_, at) => `capsem-mcp/0.1.0 (client${at})`);
    for (const name of [...names, names[0]]) await calls.operation("asks", name)({}, {});
    const seen = gateway.seen.map(({ client }) => client);
    expect(seen.slice(0, CLIENT_NAMES_MAX)).toEqual(names.slice(0, CLIENT_NAMES_MAX));
    expect(new Set(seen.slice(CLIENT_NAMES_MAX, -1))).toEqual(new Set(["capsem-mcp/0.1.0"]));
    expect(seen.at(-1)).toBe(names[0]);
  });
});
