import { expect, test } from "vitest";
import { errorOf } from "../testing/use-rigs.ts";
import { type BoundaryRig, useBoundaryRigs } from "./testing/boundary-rig.ts";
import { ruleOn } from "./testing/fake-parts.ts";
import { StreamClient } from "./testing/stream-client.ts";

const rigWith = useBoundaryRigs();

const NO_CANARY = ruleOn("process.exec_complete", "block", ' && process.exec.stdout.contains("CANARY")');
/** Writes it in pieces that no single chunk has whole, and stays until it is let go. */
const SLOW = "echo CAN''ARY; until [ -e go ]; do sleep 0.02; done; echo ended";

const start = (rig: BoundaryRig, id: string, command: string, more = {}) =>
  new StreamClient(rig.socket, id).send({ type: "start", kind: "exec", command, ...more });
const attach = (rig: BoundaryRig, id: string, job_id: string | undefined, offset = 0) =>
  new StreamClient(rig.socket, id).send({ type: "attach", job_id, offset });
const letGo = (rig: BoundaryRig, id: string) =>
  rig.client.call("PUT", `/vms/${id}/files/content?path=go`, { bytes: Buffer.alloc(0) });
const judged = (rig: BoundaryRig) =>
  rig.ledger.of("security_decision_events").filter(({ type }) => type === "process.exec_complete");
async function runningJob(rig: BoundaryRig, id: string): Promise<string> {
  const list = async () =>
    (await rig.client.get(`/vms/${id}/jobs/list`))
      .json<{ jobs: { id: string; state: string; stdout_bytes: number }[] }>()
      .jobs.find(({ state, stdout_bytes }) => state === "running" && stdout_bytes > 0);
  await expect.poll(list, { timeout: 30_000 }).toBeDefined();
  return (await list())?.id ?? "";
}
/** So long that whatever was sent would have come. */
const aRoundTrip = (rig: BoundaryRig, id: string) => rig.client.get(`/vms/${id}/jobs/list`);

test("the attack: without a rule a stream gives what a command writes, with it not one byte goes out", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  const open = await start(rig, id, "echo CANARY");
  await open.got("exit");
  expect(open.output).toBe("CANARY\n");
  rig.policy.rules(NO_CANARY);
  const held = await start(rig, id, "echo CANARY; echo CANARY >&2");
  const { job_id } = await held.got("started");
  expect((await held.got("error")).error).toMatchObject({
    ...{ kind: "policy", status: 403, rule_id: "profiles.rules.guard" },
    reason: expect.stringContaining("which has run"),
  });
  expect([held.output, held.messages.map(({ type }) => type)]).toEqual(["", ["started", "error"]]);
  const again = await attach(rig, id, job_id);
  expect((await again.got("error")).error).toMatchObject({
    ...{ kind: "policy", rule_id: "profiles.rules.guard" },
  });
  expect(again.output).toBe("");
  expect(rig.ledger.of("exec_events").at(-1)).toMatchObject({ outcome: "done", exit_code: 0 });
});

test.each(["stream", "exec", "run"] as const)(
  "nobody reads the output of a %s that a rule will judge while it runs, by whatever way",
  async (way) => {
    const rig = await rigWith();
    rig.policy.rules(NO_CANARY);
    const own = await rig.create({ name: "box" });
    const command = way === "run" ? SLOW.replace("[ -e go ]", "false") : SLOW;
    const call = way === "stream" ? null : rig.client.begin(...pathOf(way, own, command));
    const client = way === "stream" ? await start(rig, own, command) : null;
    const id = way === "run" ? await otherVm(rig, own) : own;
    const job = await runningJob(rig, id);
    const others = [await attach(rig, id, job), await attach(rig, id, job, 3)];
    const kept = [false, true].map((follow) =>
      rig.client.get(`/vms/${id}/jobs/${job}/output?follow=${follow}`),
    );
    for (const other of others) await other.got("started");
    await aRoundTrip(rig, id);
    expect([client?.output ?? "", ...others.map(({ output }) => output)].join("")).toBe("");
    if (way === "run") call?.();
    else await letGo(rig, id);
    for (const other of others) {
      const { error } = await other.got("error");
      expect(way === "run" ? ["policy", "vm_gone"] : ["policy"]).toContain(error?.kind);
      expect(other.output).toBe("");
    }
    for (const reply of await Promise.all(kept)) {
      expect(reply.status).not.toBe(200);
      expect(reply.bytes.toString()).not.toContain("CANARY");
    }
  },
);

function pathOf(way: "exec" | "run", id: string, command: string): [string, object] {
  return way === "exec" ? [`/vms/${id}/exec`, { command }] : ["/run", { command }];
}

async function otherVm(rig: BoundaryRig, own: string): Promise<string> {
  const other = () => rig.registry.list().find((vm) => vm.id !== own && vm.record.state === "running")?.id;
  await expect.poll(other, { timeout: 30_000 }).toBeDefined();
  return other() ?? "";
}

test("what no rule withholds comes whole and in order when the job has ended, and input goes in meanwhile", async () => {
  const rig = await rigWith();
  rig.policy.rules(NO_CANARY);
  const id = await rig.create({ name: "box" });
  const client = await start(rig, id, "echo ready; cat; head -c 300000 /dev/zero | tr '\\0' x; exit 4", {
    stdin: true,
  });
  await client.got("started");
  await runningJob(rig, id);
  expect(client.output).toBe("");
  client.socket.send(Buffer.concat([Buffer.of(0), Buffer.from("typed\n")]));
  await client.send({ type: "close_stdin" });
  expect(await client.got("exit")).toMatchObject({ exit_code: 4, truncated: false });
  expect(client.output).toBe(`ready\ntyped\n${"x".repeat(300_000)}`);
  expect(judged(rig).map(({ action }) => action)).toEqual(["allow"]);
  const signalled = await start(rig, id, "echo x; sleep 300");
  await signalled.got("started");
  await runningJob(rig, id);
  await signalled.send({ type: "signal", signal: 9 });
  expect(await signalled.got("exit")).toMatchObject({ signal: 9 });
  expect(signalled.output).toBe("x\n");
});

test.each([
  { end: "approved", output: "CANARY\n", last: "exit" },
  { end: "denied", output: "", last: "error" },
] as const)("a rule that asks of the output really asks, and $end it goes as decided", async (row) => {
  const rig = await rigWith();
  rig.policy.rules(ruleOn("process.exec_complete", "ask", ' && process.exec.stdout.contains("CANARY")'));
  const id = await rig.create({ name: "box" });
  const client = await start(rig, id, "echo CANARY");
  await expect.poll(() => rig.asks.held.length, { timeout: 30_000 }).toBe(1);
  const { job_id } = await client.got("started");
  const other = await attach(rig, id, job_id);
  await other.got("started");
  expect([client.output, other.output]).toEqual(["", ""]);
  rig.asks.held[0]?.resolve(row.end);
  for (const each of [client, other]) {
    expect(await each.got(row.last)).toBeDefined();
    expect(each.output).toBe(row.output);
  }
  const kept = await rig.client.get(`/vms/${id}/jobs/${job_id}/output`);
  expect(kept.status).toBe(row.end === "approved" ? 200 : 403);
  expect(rig.asks.held).toHaveLength(1);
});

test("of those who wait while a person is asked the last one that leaves ends the ask", async () => {
  const rig = await rigWith();
  rig.policy.rules(ruleOn("process.exec_complete", "ask", ' && process.exec.stdout != ""'));
  const id = await rig.create({ name: "box" });
  const client = await start(rig, id, "echo CANARY");
  await expect.poll(() => rig.asks.held.length, { timeout: 30_000 }).toBe(1);
  const { job_id } = await client.got("started");
  const other = await attach(rig, id, job_id);
  await other.got("started");
  client.socket.terminate();
  await aRoundTrip(rig, id);
  expect(rig.asks.held[0]?.context.signal.aborted).toBe(false);
  other.socket.terminate();
  await expect.poll(() => rig.asks.held[0]?.context.signal.aborted, { timeout: 30_000 }).toBe(true);
  const late = await rig.client.get(`/vms/${id}/jobs/${job_id}/output`);
  expect(errorOf(late).kind).toBe("policy");
});

test.each(["block", "ask"] as const)(
  "a job whose client has left is judged all the same, and a rule's %s holds for who comes later",
  async (action) => {
    const rig = await rigWith();
    rig.policy.rules(ruleOn("process.exec_complete", action, ' && process.exec.stdout.contains("CANARY")'));
    const id = await rig.create({ name: "box" });
    const client = await start(rig, id, SLOW);
    const { job_id } = await client.got("started");
    await runningJob(rig, id);
    client.socket.terminate();
    await letGo(rig, id);
    await expect.poll(() => judged(rig).length, { timeout: 30_000 }).toBe(1);
    if (action === "ask") {
      await expect.poll(() => rig.asks.held.length).toBe(1);
      rig.asks.held[0]?.resolve("approved");
    }
    const late = await rig.client.get(`/vms/${id}/jobs/${job_id}/output`);
    expect(late.status).toBe(action === "ask" ? 200 : 403);
    expect(late.bytes.toString().includes("CANARY")).toBe(action === "ask");
  },
);

test("a command whose caller left is judged, and its output is not given where a rule withholds it", async () => {
  const rig = await rigWith();
  rig.policy.rules(NO_CANARY);
  const id = await rig.create({ name: "box" });
  const leave = rig.client.begin(`/vms/${id}/exec`, { command: SLOW });
  const job = await runningJob(rig, id);
  leave();
  await expect.poll(() => judged(rig).length, { timeout: 30_000 }).toBe(1);
  const late = await rig.client.get(`/vms/${id}/jobs/${job}/output`);
  expect(errorOf(late)).toMatchObject({ kind: "policy" });
});

test("a rule that comes while a job runs holds from the next job on; what it is about is given to nobody later", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  const client = await start(rig, id, SLOW);
  const { job_id } = await client.got("started");
  await expect.poll(() => client.output, { timeout: 30_000 }).toBe("CANARY\n");
  rig.policy.rules(NO_CANARY);
  await letGo(rig, id);
  await client.got("exit");
  expect(client.output).toBe("CANARY\nended\n");
  await expect
    .poll(async () => (await rig.client.get(`/vms/${id}/jobs/${job_id}/output`)).status, { timeout: 30_000 })
    .toBe(403);
});

test("a held job whose VM goes ends every wait with that", async () => {
  const rig = await rigWith();
  rig.policy.rules(NO_CANARY);
  const id = await rig.create({ name: "box" });
  const client = await start(rig, id, SLOW);
  const { job_id } = await client.got("started");
  const kept = rig.client.get(`/vms/${id}/jobs/${job_id}/output?follow=true`);
  await runningJob(rig, id);
  await rig.client.delete(`/vms/${id}/delete`);
  expect((await client.got("error")).error?.kind).toBe("vm_gone");
  expect(errorOf(await kept).kind).toBe("vm_gone");
  expect(client.output).toBe("");
});

test("a terminal cannot be held: its bytes go at once, and its result is noted", async () => {
  const rig = await rigWith();
  rig.policy.rules(NO_CANARY);
  const id = await rig.create({ name: "box" });
  const client = await start(rig, id, SLOW, { kind: "terminal" });
  await expect.poll(() => client.output, { timeout: 30_000 }).toContain("CANARY");
  await letGo(rig, id);
  await client.got("exit");
  await expect.poll(() => judged(rig).map(({ action }) => action), { timeout: 30_000 }).toEqual(["block"]);
});

test("a job that did not start holds nothing up, and is no job", async () => {
  const rig = await rigWith();
  rig.policy.rules(NO_CANARY);
  const id = await rig.create({ name: "box" });
  const client = await new StreamClient(rig.socket, id).send({
    ...{ type: "start", kind: "exec", argv: ["no-such-program"] },
  });
  expect((await client.got("error")).error?.kind).toBe("command_not_found");
  const job = String(rig.ledger.of("exec_events").at(-1)?.job_id);
  expect(errorOf(await rig.client.get(`/vms/${id}/jobs/${job}/output`)).kind).toBe("job_not_found");
});
