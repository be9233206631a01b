import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type AskInfo, ROUTES } from "@capsem/api";
import { expect, test } from "vitest";
import { FakeLedger } from "../testing/fake-ledger.ts";
import type { Rig } from "../testing/rig.ts";
import { createVm, useRigs } from "../testing/use-rigs.ts";

const rigWith = useRigs();

/** It matches what comes back from the command as well, which is not another question. */
const DEPLOYS = {
  action: "ask",
  match: 'process.command.contains("deploy")',
  priority: 20,
  reason: "deployments need a person",
};
/** The gateway's client, which asks its user by itself. */
const AGENT = { "x-capsem-requester": "gateway", "x-capsem-client": "agent/1", "x-capsem-asks": "later" };
const DEPLOY = { command: "echo deployed >> deploys" };

interface Refusal {
  readonly error: {
    readonly kind: string;
    readonly reason: string;
    readonly rule_id: string;
    readonly ask_id: string;
    readonly retryable: boolean;
  };
}

async function start() {
  const ledger = new FakeLedger();
  const rig = await rigWith({ powers: { startLedger: ledger.startLedger } });
  await putRule(rig, "deploy", DEPLOYS);
  const id = await createVm(rig);
  return { rig, id, rows: (table: string) => ledger.rows(id, table) };
}

async function putRule({ client }: Rig, name: string, rule: object): Promise<void> {
  const reply = await client.call("PUT", `/rules/profiles.rules.${name}`, { body: rule });
  expect(reply.status, reply.bytes.toString()).toBe(200);
}
const exec = ({ client }: Rig, id: string, headers: Record<string, string> = AGENT, body: object = DEPLOY) =>
  client.call("POST", `/vms/${id}/exec`, { headers, body });
async function refused(call: ReturnType<typeof exec>): Promise<Refusal["error"]> {
  const reply = await call;
  expect(reply.status, reply.bytes.toString()).toBe(403);
  const { error } = reply.json() as unknown as Refusal;
  expect(error).toMatchObject({ kind: "policy", rule_id: "profiles.rules.deploy" });
  return error;
}
async function worked(call: ReturnType<typeof exec>): Promise<void> {
  const reply = await call;
  expect(reply.status, reply.bytes.toString()).toBe(200);
  expect(reply.json()).toMatchObject({ exit_code: 0 });
}
async function resolve({ client }: Rig, id: string, body: object): Promise<AskInfo> {
  const reply = await client.call("POST", `/asks/${id}/resolve`, { body, headers: AGENT });
  expect(reply.status, reply.bytes.toString()).toBe(200);
  return ROUTES.askResolve.result.parse(reply.json());
}
async function waiting({ client }: Rig): Promise<string[]> {
  const { asks } = ROUTES.asks.result.parse((await client.get("/asks/list?state=pending")).json());
  return asks.map(({ id }) => id);
}
/** How often the command ran. */
function deploys({ layout }: Rig, id: string, file = "deploys"): number {
  const path = join(layout.vms, id, "guest", file);
  return existsSync(path) ? readFileSync(path, "utf8").trimEnd().split("\n").length : 0;
}

test("a call whose client asks by itself is refused at once, and approved it goes on exactly once", async () => {
  const { rig, id, rows } = await start();
  const first = await refused(exec(rig, id));
  expect(first).toMatchObject({ retryable: true, reason: expect.stringContaining(first.ask_id) });
  expect(first.reason).toContain("deployments need a person");
  expect(await waiting(rig)).toEqual([first.ask_id]);
  // Too early it is the same ask.
  expect((await refused(exec(rig, id))).ask_id).toBe(first.ask_id);
  expect(deploys(rig, id)).toBe(0);
  expect(await resolve(rig, first.ask_id, { approve: true, note: "go" })).toMatchObject({
    ...{ state: "approved", scope: "once", resolver: "gateway, client agent/1", is_used: false },
  });
  await worked(exec(rig, id));
  expect(deploys(rig, id)).toBe(1);
  const second = await refused(exec(rig, id));
  expect(second.ask_id).not.toBe(first.ask_id);
  expect(deploys(rig, id)).toBe(1);
  await expect.poll(() => rows("security_ask_events").map(({ state }) => state)).toHaveLength(5);
  expect(rows("security_ask_events")).toMatchObject([
    { ask_id: first.ask_id, state: "pending", client: "agent/1", requester: "gateway" },
    { ask_id: first.ask_id, state: "pending" },
    { ask_id: first.ask_id, state: "approved", note: "go", resolver: "gateway, client agent/1" },
    { ask_id: first.ask_id, state: "approved", note: "go" },
    { ask_id: second.ask_id, state: "pending" },
  ]);
  await expect
    .poll(() => rows("exec_events").map(({ outcome }) => outcome))
    .toEqual(["asked", "asked", "done", "asked"]);
});

test("of two of the same calls at once after an approval, one goes on", async () => {
  const { rig, id } = await start();
  const { ask_id } = await refused(exec(rig, id));
  await resolve(rig, ask_id, { approve: true });
  const replies = await Promise.all([exec(rig, id), exec(rig, id)]);
  expect(replies.map(({ status }) => status).sort()).toEqual([200, 403]);
  expect(deploys(rig, id)).toBe(1);
});

test("approved for its VM it goes on each time there, and not elsewhere", async () => {
  const { rig, id } = await start();
  const other = await createVm(rig);
  const { ask_id } = await refused(exec(rig, id));
  await resolve(rig, ask_id, { approve: true, scope: "vm" });
  for (let times = 0; times < 3; times += 1) await worked(exec(rig, id));
  expect(deploys(rig, id)).toBe(3);
  expect((await refused(exec(rig, other))).ask_id).not.toBe(ask_id);
});

test("denied it is asked about anew, and was not done", async () => {
  const { rig, id } = await start();
  const { ask_id } = await refused(exec(rig, id));
  await resolve(rig, ask_id, { approve: false });
  const again = await refused(exec(rig, id));
  expect(again.ask_id).not.toBe(ask_id);
  expect(deploys(rig, id)).toBe(0);
});

test.each<[string, object]>([
  ["another command", { command: `${DEPLOY.command}; echo more` }],
  ["another environment", { ...DEPLOY, env: { TARGET: "production" } }],
  ["another standard input", { ...DEPLOY, stdin: { encoding: "utf8", data: "yes" } }],
])("an approval serves not %s", async (_, body) => {
  const { rig, id } = await start();
  const { ask_id } = await refused(exec(rig, id));
  await resolve(rig, ask_id, { approve: true });
  await refused(exec(rig, id, AGENT, body));
  expect(deploys(rig, id)).toBe(0);
});

test.each(["now", "LATER", "later, later", ""])(
  "a header of %j is none: the call is held until somebody answers",
  async (word) => {
    const { rig, id } = await start();
    const held = exec(rig, id, { ...AGENT, "x-capsem-asks": word });
    await expect.poll(() => waiting(rig)).toHaveLength(1);
    const [ask = ""] = await waiting(rig);
    await resolve(rig, ask, { approve: true });
    await worked(held);
  },
);

test("a VM that the call itself makes is another one each time, and the approval serves the retry", async () => {
  const { rig } = await start();
  const run = () => rig.client.call("POST", "/run", { headers: AGENT, body: { command: "echo deploy" } });
  const first = await refused(run());
  expect((await refused(run())).retryable).toBe(true);
  for (const ask of await waiting(rig)) await resolve(rig, ask, { approve: ask === first.ask_id });
  expect((await run()).status).toBe(200);
  expect((await refused(run())).ask_id).not.toBe(first.ask_id);
});

test("what has been done is not refused for later: its result is held, and given when it is approved", async () => {
  const { rig, id } = await start();
  await putRule(rig, "secrets", {
    action: "ask",
    match: 'event.type == "process.exec_complete" && process.exec.stdout.contains("deep")',
  });
  const held = exec(rig, id, AGENT, { command: "echo deep >> out; cat out" });
  await expect.poll(() => waiting(rig)).toHaveLength(1);
  expect(deploys(rig, id, "out")).toBe(1);
  const [ask = ""] = await waiting(rig);
  await resolve(rig, ask, { approve: true });
  const reply = await held;
  expect(reply.json(), reply.bytes.toString()).toMatchObject({ stdout: { data: "deep\n" } });
  expect(deploys(rig, id, "out")).toBe(1);
});
