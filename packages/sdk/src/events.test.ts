import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Client } from "./client.ts";
import type { ClientEvent } from "./events.ts";
import { type Rig, startWays, WAYS } from "./testing/ways.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startWays();
});
afterAll(() => rig.close());

async function next(events: AsyncGenerator<ClientEvent>): Promise<ClientEvent> {
  const { value, done } = await events.next();
  if (done === true) throw new Error("the events ended");
  return value;
}

describe.each(WAYS)("over the %s", (way) => {
  let client: Client;
  beforeAll(() => {
    client = rig.client(way);
  });
  beforeEach(() => rig.service.state.clear());

  test("changes of VMs are told in order, after all VMs of the moment", async () => {
    const { id } = await client.vms.create({ name: "first" });
    const events = client.events();
    expect(await next(events)).toMatchObject({ type: "hello", vms: [{ id }] });
    await client.vm(id).stop();
    expect(await next(events)).toMatchObject({ type: "vm", vm: { id, state: "stopped" } });
    await client.vm(id).delete();
    expect(await next(events)).toMatchObject({ type: "vm_gone", vm_id: id, last_state: "stopped" });
    await events.return(undefined);
  });

  test("what a slow reader missed is listed again", async () => {
    const events = client.events();
    await next(events);
    rig.service.state.tell({ type: "lagged", seq: 0, missed: 7 });
    const { id } = rig.service.state.create({}).info;
    expect(await next(events)).toMatchObject({ type: "lagged", missed: 7, vms: [{ id }], asks: [] });
    await events.return(undefined);
  });

  test("asks that wait are in the first event, and one is told when it is made and when it is answered", async () => {
    const { id: vmId } = rig.service.state.create({ name: "asker" }).info;
    const asked = {
      vm: { id: vmId, name: "asker" },
      decision: { rule_id: "profiles.rules.x", reason: "why" },
      title: "deploy",
      caller: { requester: "user", client: null, traceId: null, signal: new AbortController().signal },
    };
    const first = rig.service.state.policy.ask(asked);
    const events = client.events();
    expect(await next(events)).toMatchObject({ type: "hello", asks: [{ id: first.id }] });
    const second = rig.service.state.policy.ask(asked);
    expect(await next(events)).toMatchObject({ type: "ask", ask: { id: second.id, state: "pending" } });
    for (const { id } of [first, second]) {
      await client.asks.resolve(id, { approve: false });
      expect(await next(events)).toMatchObject({ type: "ask", ask: { id, state: "denied" } });
    }
    await events.return(undefined);
  });

  test("a signal ends the events as cancelled, leaving the loop ends them quietly, and both close the connection", async () => {
    const abort = new AbortController();
    const events = client.events({ signal: abort.signal });
    await next(events);
    const pending = events.next();
    abort.abort();
    await expect(pending).rejects.toMatchObject({ kind: "cancelled" });
    for await (const _ of client.events()) break;
    await expect.poll(() => rig.service.state.followerCount).toBe(0);
    const never = client.events({ signal: AbortSignal.abort() });
    await expect(never.next()).rejects.toMatchObject({ kind: "cancelled" });
  });

  test("a lost connection ends them as unavailable", async () => {
    const events = client.events();
    await next(events);
    for (const socket of rig.service.connections) socket.destroy();
    await expect(events.next()).rejects.toMatchObject({ kind: "unavailable", retryable: true });
  });

  test("stats, panics, triage and host logs are typed calls", async () => {
    expect((await client.stats()).pool).toEqual({ claimed: 0, missed: 0 });
    expect((await client.panics({ since: "1h", limit: 1 })).panics.map(({ message }) => message)).toEqual([
      "one",
    ]);
    expect((await client.triage()).findings[0]?.kind).toBe("slow");
    expect((await client.triage({ vm_id: "vm_aaaaaaaaaaaaaaaa" })).findings).toEqual([]);
    expect((await client.hostLogs("owner", { grep: "ready" })).lines).toEqual(["owner is ready"]);
  });
});
