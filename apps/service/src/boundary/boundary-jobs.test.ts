import type { ClientRequest } from "node:http";
import { streamServer } from "@capsem/api";
import { expect, test } from "vitest";
import { errorOf } from "../testing/use-rigs.ts";
import { type BoundaryRig, useBoundaryRigs } from "./testing/boundary-rig.ts";
import { ruleOn } from "./testing/fake-parts.ts";
import { StreamClient } from "./testing/stream-client.ts";

const rigWith = useBoundaryRigs();

interface Result {
  readonly job_id: string;
  readonly stdout: { readonly data: string };
}

const lastExec = ({ ledger }: BoundaryRig) => ledger.of("exec_events").at(-1);

async function untilExec(rig: BoundaryRig, count = 1) {
  await expect.poll(() => rig.ledger.of("exec_events").length, { timeout: 30_000 }).toBe(count);
  return lastExec(rig);
}

test("a command's row says what it was, who asked, how it ended and how its output began", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  const reply = await rig.client.call("POST", `/vms/${id}/exec`, {
    headers: { "x-capsem-client": "tester/1", "x-capsem-turn": "t1", "x-capsem-token-id": "0123abcd" },
    body: {
      argv: ["bash", "-c", "echo $A; head -c 100000 /dev/zero | tr '\\0' x >&2; exit 3"],
      env: { A: "a secret value" },
      cwd: "sub/..",
    },
  });
  const { job_id } = reply.json<Result>();
  expect(lastExec(rig)).toMatchObject({
    job_id,
    kind: "exec",
    command: "bash -c 'echo $A; head -c 100000 /dev/zero | tr '\\''\\0'\\'' x >&2; exit 3'",
    user: "user",
    cwd: "/workspace",
    env_names: '["A"]',
    exit_code: 3,
    signal: null,
    timed_out: false,
    out_of_memory: false,
    stdout_bytes: 15,
    stderr_bytes: 100_000,
    stdout_preview: "a secret value\n",
    stderr_preview: "x".repeat(4_096),
    outcome: "done",
    client: "tester/1",
    turn_id: "t1",
    token_id: null,
  });
  const complete = rig.ledger.of("security_decision_events", id).at(-1);
  expect(complete?.type).toBe("process.exec_complete");
  const body =
    rig.ledger.of("event_body_blobs").find(({ hash }) => hash === complete?.event_hash)?.body ?? "{}";
  const { fields } = JSON.parse(body) as { fields: Record<string, unknown> };
  expect(fields).toMatchObject({
    "process.exec.exit_code": 3,
    "process.exec.stdout": "a secret value\n",
    "process.exec.stderr": "x".repeat(65_536),
    "process.truncated": true,
    "process.exec.path": "bash",
  });
});

test("blocked output is withheld: by the answer, by the job's kept output, and by attaching to it", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  const command = { command: "echo CANARY" };
  const shown = await rig.client.post(`/vms/${id}/exec`, command);
  expect(shown.json<Result>().stdout.data).toBe("CANARY\n");
  const open = await rig.client.get(`/vms/${id}/jobs/${shown.json<Result>().job_id}/output`);
  expect(open.bytes.toString()).toContain("CANARY");

  rig.policy.rules(ruleOn("process.exec_complete", "block", ' && process.exec.stdout.contains("CANARY")'));
  const refused = await rig.client.post(`/vms/${id}/exec`, command);
  expect(errorOf(refused)).toMatchObject({ kind: "policy", status: 403 });
  expect(refused.bytes.toString()).not.toContain("CANARY");
  const row = lastExec(rig);
  expect(row).toMatchObject({ outcome: "done", exit_code: 0, decision: "allow" });
  expect(rig.ledger.of("security_decision_events").at(-1)).toMatchObject({
    type: "process.exec_complete",
    action: "block",
  });
  const kept = await rig.client.get(`/vms/${id}/jobs/${row?.job_id}/output`);
  expect(errorOf(kept).kind).toBe("policy");
  const attached = await new StreamClient(rig.socket, id).send({
    type: "attach",
    job_id: row?.job_id,
    offset: 0,
  });
  expect((await attached.got("error")).error?.kind).toBe("policy");
  expect(attached.output).toBe("");
  const run = await rig.client.post("/run", command);
  expect(errorOf(run).kind).toBe("policy");
  expect(run.bytes.toString()).not.toContain("CANARY");
});

test("a command whose caller leaves ends as cancelled, and is killed", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  let request: ClientRequest | undefined;
  const call = rig.client.call("POST", `/vms/${id}/exec`, {
    body: { command: "sleep 300" },
    onRequest: (outgoing) => {
      request = outgoing;
    },
  });
  const state = async () =>
    (await rig.client.get(`/vms/${id}/jobs/list`)).json<{ jobs: { state: string }[] }>().jobs[0]?.state;
  await expect.poll(state, { timeout: 30_000 }).toBe("running");
  request?.destroy();
  await expect(call).rejects.toThrow();
  expect(await untilExec(rig)).toMatchObject({ outcome: "cancelled", exit_code: null });
  await expect.poll(state, { timeout: 30_000 }).toBe("done");
});

test("a command that cannot start ends as failed", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  await rig.client.post(`/vms/${id}/exec`, { argv: ["no-such-program"] });
  expect(lastExec(rig)).toMatchObject({ outcome: "failed", error: "command_not_found" });
});

test("a streamed job's row ends when the job ends, though its client left long before", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  const client = await new StreamClient(rig.socket, id).send({
    type: "start",
    kind: "exec",
    command: "echo began; until [ -e go ]; do sleep 0.02; done; echo ended; exit 5",
  });
  const { job_id } = await client.got("started");
  await expect.poll(() => client.output, { timeout: 30_000 }).toBe("began\n");
  client.socket.terminate();
  expect(rig.ledger.of("exec_events")).toEqual([]);
  await rig.client.call("PUT", `/vms/${id}/files/content?path=go`, { bytes: Buffer.alloc(0) });
  expect(await untilExec(rig)).toMatchObject({
    job_id,
    kind: "stream",
    outcome: "done",
    exit_code: 5,
    stdout_preview: "began\nended\n",
    stdout_bytes: 12,
  });
  await expect
    .poll(() => rig.ledger.of("security_decision_events").map(({ type }) => type))
    .toContain("process.exec_complete");
  // To attach is no act of its own.
  const before = rig.ledger.of("security_decision_events").length;
  const again = await new StreamClient(rig.socket, id).send({ type: "attach", job_id, offset: 0 });
  expect(await again.got("exit")).toMatchObject({ exit_code: 5 });
  expect(rig.ledger.of("security_decision_events")).toHaveLength(before);
});

test("the bytes of a stream have gone by when they are judged; nobody gets them once more", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  rig.policy.rules(ruleOn("process.exec_complete", "block"));
  const client = await new StreamClient(rig.socket, id).send({
    type: "start",
    kind: "terminal",
    command: "echo x",
  });
  const { job_id } = await client.got("started");
  expect(await client.got("exit")).toMatchObject({ exit_code: 0 });
  expect(await untilExec(rig)).toMatchObject({ kind: "terminal", outcome: "done", decision: "allow" });
  await expect
    .poll(async () => errorOf(await rig.client.get(`/vms/${id}/jobs/${job_id}/output`)).kind)
    .toBe("policy");
});

test("a terminal that names no command is judged as the shell that it starts", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  rig.policy.rules(ruleOn("process.exec", "block", ' && process.command == "bash -l"'));
  const client = await new StreamClient(rig.socket, id).send({ type: "start", kind: "terminal" });
  expect((await client.got("error")).error).toMatchObject({
    kind: "policy",
    rule_id: "profiles.rules.guard",
  });
});

test("jobs whose VM is lost or deleted end as interrupted", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  const start = { type: "start", kind: "exec", command: "sleep 300" };
  const first = await new StreamClient(rig.socket, id).send(start);
  await first.got("started");
  await rig.client.delete(`/vms/${id}/delete`);
  expect(await untilExec(rig)).toMatchObject({ outcome: "interrupted", error: "vm_gone" });
  const other = await rig.create({ name: "other" });
  const second = await new StreamClient(rig.socket, other).send(start);
  await second.got("started");
  await rig.client.post(`/vms/${other}/exec`, { argv: ["!gone", "out_of_memory"] });
  await untilExec(rig, 3);
  const rows = rig.ledger.of("exec_events", other);
  expect(rows.map(({ outcome, error }) => `${outcome} ${error}`).sort()).toEqual([
    "failed vm_gone",
    "interrupted vm_gone",
  ]);
  expect(rig.ledger.of("lifecycle_events", other).at(-1)).toMatchObject({
    action: "stop",
    detail: "out_of_memory",
    requester: "service",
  });
});

test("an ask holds a command before anything is asked of its VM, and the caller that leaves ends it", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  rig.spy(id);
  rig.policy.rules(ruleOn("process.exec", "ask"));
  const approved = rig.client.post(`/vms/${id}/exec`, { command: "echo yes" });
  await expect.poll(() => rig.asks.held.length).toBe(1);
  expect(rig.calls).toEqual([]);
  rig.asks.held[0]?.resolve("approved");
  expect((await approved).json<Result>().stdout.data).toBe("yes\n");

  rig.calls.length = 0;
  const leave = rig.client.begin(`/vms/${id}/exec`, { command: "echo no" });
  await expect.poll(() => rig.asks.held.length).toBe(2);
  leave();
  expect(await untilExec(rig, 2)).toMatchObject({ outcome: "cancelled" });
  expect(rig.calls).toEqual([]);
  const streamed = await new StreamClient(rig.socket, id).send({
    type: "start",
    kind: "exec",
    command: "echo",
  });
  await expect.poll(() => rig.asks.held.length).toBe(3);
  rig.asks.held[2]?.resolve("denied");
  expect(streamServer.parse(await streamed.got("error"))).toMatchObject({
    error: { kind: "policy", rule_id: "profiles.rules.guard", ask_id: "ask_abcdefghij234567" },
  });
  expect(rig.calls).toEqual([]);
});

test("arguments are quoted as a shell takes them, and what would be cut is not judged", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  await rig.client.post(`/vms/${id}/exec`, { argv: ["echo", "it's", "a b", "", "$HOME", "a=b,c"] });
  expect(lastExec(rig)?.command).toBe("echo 'it'\\''s' 'a b' '' '$HOME' a=b,c");
  const hidden = await rig.client.post(`/vms/${id}/exec`, { argv: ["true", "'".repeat(40_000), "rm -rf /"] });
  expect(errorOf(hidden).kind).toBe("too_large");
  expect(rig.ledger.of("exec_events")).toHaveLength(1);
});
