import { apiFailure, HOST_LEDGER } from "@capsem/api";
import { expect, test } from "vitest";
import { errorOf, type VmShown } from "../testing/use-rigs.ts";
import { type BoundaryRig, useBoundaryRigs } from "./testing/boundary-rig.ts";
import { ruleOn } from "./testing/fake-parts.ts";

const rigWith = useBoundaryRigs();

const lives = ({ ledger }: BoundaryRig, id?: string) =>
  ledger.of("lifecycle_events", id).map(({ action, detail, requester, outcome }) => ({
    ...{ action, detail, outcome },
    by: requester,
  }));
const USER = "user uid 1000";

async function untilWarm(rig: BoundaryRig, count: number): Promise<void> {
  rig.pool.open();
  await expect.poll(() => rig.pool.count("warm"), { timeout: 30_000 }).toBe(count);
}

test("a VM's ledger tells its life from its create, each row with who asked", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  for (const act of ["stop", "start", "restart"]) await rig.client.post(`/vms/${id}/${act}`);
  await rig.client.post(`/vms/${id}/rename`, { name: "other" });
  await rig.client.delete(`/vms/${id}/delete`);
  expect(lives(rig, id)).toEqual(
    [
      ["create", null],
      ["stop", null],
      ["start", null],
      ["restart", null],
      ["rename", "other"],
      ["delete", null],
    ].map(([action, detail]) => ({ action, detail, outcome: "done", by: USER })),
  );
  expect(rig.ledger.of("lifecycle_events", id).at(-1)).toMatchObject({
    vm_name: "other",
    image: "sha256:fake",
  });
});

test("a command for a VM of its own is judged first, and its rows tell the whole story", async () => {
  const rig = await rigWith();
  const reply = await rig.client.post("/run", { command: "echo x", vm_env: { A: "b" } });
  expect(reply.status).toBe(200);
  const [id = "", ...others] = [...rig.ledger.rows.keys()];
  expect(others).toEqual([]);
  expect(rig.starts.filter((start) => start === id)).toHaveLength(1);
  expect(lives(rig, id)).toEqual([
    { action: "create", detail: null, outcome: "done", by: USER },
    { action: "delete", detail: "run_ended", outcome: "done", by: "service" },
  ]);
  expect(rig.ledger.of("exec_events", id)).toMatchObject([{ kind: "run", outcome: "done", exit_code: 0 }]);
  const own = rig.ledger.of("security_decision_events", id).filter(({ requester }) => requester === USER);
  expect(new Set(own.map(({ trace_id }) => trace_id)).size).toBe(1);

  rig.ledger.clear();
  rig.policy.rules(ruleOn("vm.lifecycle", "block", ' && vm.lifecycle.action == "create"'));
  const refused = await rig.client.post("/run", { command: "echo x" });
  expect(errorOf(refused).kind).toBe("policy");
  expect(rig.ledger.of("lifecycle_events", HOST_LEDGER)).toMatchObject([
    { action: "create", outcome: "blocked" },
  ]);
  expect(rig.ledger.of("exec_events")).toMatchObject([{ kind: "run", outcome: "failed", error: "policy" }]);
  expect(rig.registry.list()).toEqual([]);
});

test("what cannot be created is not judged: it is no act, and leaves no ledger", async () => {
  const rig = await rigWith();
  await rig.create({ name: "box" });
  rig.ledger.clear();
  expect(errorOf(await rig.client.post("/vms/create", { name: "box" })).kind).toBe("name_taken");
  expect(errorOf(await rig.client.post("/vms/create", { cpus: 64 })).kind).toBe("invalid_input");
  expect(errorOf(await rig.client.post("/run", { command: "x".repeat(60_000) })).kind).toBe("too_large");
  expect(rig.ledger.rows.size).toBe(0);
});

test("a create that waits for a person has made nothing, and an approval makes the VM that was shown", async () => {
  const rig = await rigWith();
  rig.policy.rules(ruleOn("vm.lifecycle", "ask", ' && vm.lifecycle.action == "create"'));
  const asked = rig.client.post("/vms/create", { name: "box" });
  await expect.poll(() => rig.asks.held.length).toBe(1);
  expect([rig.starts, rig.registry.list()]).toEqual([[], []]);
  rig.asks.held[0]?.resolve("approved");
  const { id } = (await asked).json<VmShown>();
  expect(id).toBe(rig.asks.held[0]?.asked.vm?.id);
  const denied = rig.client.post("/run", { command: "true" });
  await expect.poll(() => rig.asks.held.length).toBe(2);
  rig.asks.held[1]?.resolve("denied");
  expect(errorOf(await denied).kind).toBe("policy");
  expect(rig.registry.list()).toHaveLength(1);
});

test("a create takes the prepared VM whose id was judged, and one that is refused leaves it in the pool", async () => {
  const rig = await rigWith({ poolSize: 1 });
  await untilWarm(rig, 1);
  const [slot = ""] = rig.pool.runs().map(({ vmId }) => vmId);
  rig.policy.rules(ruleOn("vm.lifecycle", "block"));
  expect(errorOf(await rig.client.post("/vms/create", {})).kind).toBe("policy");
  expect(rig.pool.runs().map(({ vmId }) => vmId)).toEqual([slot]);
  rig.policy.rules(ruleOn("vm.lifecycle", "ask"));
  const asked = rig.client.post("/vms/create", {});
  await expect.poll(() => rig.asks.held.length).toBe(1);
  expect(rig.asks.held[0]?.asked.vm?.id).toBe(slot);
  // While it is kept nobody else gets it.
  rig.policy.rules("");
  const other = await rig.create();
  expect(other).not.toBe(slot);
  rig.asks.held[0]?.resolve("approved");
  expect((await asked).json<VmShown>().id).toBe(slot);
  expect(rig.pool.claimedCount).toBe(1);
});

test("a prepared VM that dies while a person is asked is made anew under its id", async () => {
  const rig = await rigWith({ poolSize: 1 });
  await untilWarm(rig, 1);
  rig.policy.rules(ruleOn("vm.lifecycle", "ask"));
  const asked = rig.client.post("/vms/create", {});
  await expect.poll(() => rig.asks.held.length).toBe(1);
  const id = rig.asks.held[0]?.asked.vm?.id ?? "";
  await rig.pool.runs()[0]?.kill();
  rig.asks.held[0]?.resolve("approved");
  expect((await asked).json<VmShown>()).toMatchObject({ id, state: "running" });
  rig.policy.rules("");
  const exec = await rig.client.post(`/vms/${id}/exec`, { command: "echo alive" });
  expect(exec.json<{ stdout: { data: string } }>().stdout.data).toBe("alive\n");
});

test("a purge judges each VM: one that is refused stays, and the answer says so", async () => {
  const rig = await rigWith();
  const kept = await rig.create({ name: "kept" });
  const gone = await rig.create({ name: "gone" });
  rig.ledger.clear();
  rig.policy.rules(ruleOn("vm.lifecycle", "block", ' && vm.name == "kept"'));
  const refused = await rig.client.post("/purge", { all: true });
  expect(refused.json<{ error: unknown }>().error).toMatchObject({
    kind: "policy",
    rule_id: "profiles.rules.guard",
    deleted: [gone],
    refused: [kept],
  });
  expect(errorOf(refused).reason).toContain(`VM "${kept}" stays`);
  expect(rig.registry.list().map(({ id }) => id)).toEqual([kept]);
  expect(rig.ledger.of("lifecycle_events", kept)).toMatchObject([{ action: "purge", outcome: "blocked" }]);
  expect(rig.ledger.of("lifecycle_events", gone)).toMatchObject([{ action: "purge", outcome: "done" }]);
});

test("a VM whose ledger is broken does not come to run, and may once it is set aside", async () => {
  const broken = new Set<string>();
  const rig = await rigWith({
    async checkLedger(id) {
      if (broken.has(id)) throw apiFailure("ledger_broken", "Cannot record the act: its ledger is broken");
    },
  });
  const id = await rig.create({ name: "box" });
  await rig.client.post(`/vms/${id}/stop`);
  broken.add(id);
  for (const act of ["start", "restart"]) {
    const refused = await rig.client.post(`/vms/${id}/${act}`);
    expect(errorOf(refused)).toMatchObject({ kind: "ledger_broken", status: 409 });
    expect(rig.registry.get(id)).toMatchObject({ record: { state: "failed" }, run: null });
    expect(rig.ledger.of("lifecycle_events").at(-1)).toMatchObject({
      outcome: "failed",
      error: "ledger_broken",
    });
  }
  broken.clear();
  expect((await rig.client.post(`/vms/${id}/start`)).status).toBe(200);
});

test("ends that nobody asked for are recorded with their reason", async () => {
  const rig = await rigWith();
  const retained = await rig.create({ name: "box" });
  const temporary = await rig.create();
  const overQuota = await rig.create();
  const lost = await rig.create({ name: "lost" });
  const held = await rig.client.hold("/vms/create?hold=true", {});
  const { id: heldId } = (await held.lines.next()).value as VmShown;
  rig.ledger.clear();
  await rig.lifecycle.end(rig.registry.get(retained), "idle");
  await rig.lifecycle.end(rig.registry.get(temporary), "lifetime");
  await rig.lifecycle.end(rig.registry.get(overQuota), "disk_quota");
  await rig.lifecycle.remove(rig.registry.get(overQuota), "failed");
  await rig.registry.get(lost).run?.kill();
  held.leave();
  await expect.poll(() => rig.ledger.of("lifecycle_events", heldId).length, { timeout: 30_000 }).toBe(1);
  await expect.poll(() => rig.ledger.of("lifecycle_events", lost).length, { timeout: 30_000 }).toBe(1);
  const by = { outcome: "done", by: "service" };
  expect(lives(rig, retained)).toEqual([{ action: "stop", detail: "idle", ...by }]);
  expect(lives(rig, temporary)).toEqual([{ action: "stop", detail: "lifetime", ...by }]);
  expect(lives(rig, overQuota)).toEqual([
    { action: "stop", detail: "disk_quota", ...by },
    { action: "delete", detail: "failed", ...by },
  ]);
  expect(lives(rig, lost)).toEqual([{ action: "stop", detail: "owner_lost", ...by }]);
  expect(lives(rig, heldId)).toEqual([{ action: "delete", detail: "client_left", ...by }]);
});

test("the service's stop is the end of its VMs, and is recorded as that", async () => {
  const rig = await rigWith();
  const retained = await rig.create({ name: "box" });
  const temporary = await rig.create();
  rig.ledger.clear();
  await rig.lifecycle.close();
  expect(lives(rig, retained)).toMatchObject([{ action: "stop", detail: "service_stop", by: "service" }]);
  expect(lives(rig, temporary)).toMatchObject([{ action: "delete", detail: "service_stop", by: "service" }]);
});
