import { defer } from "@capsem/base";
import { expect, test } from "vitest";
import {
  append,
  decision,
  hashes,
  kindOf,
  kindOfLater,
  lifecycle,
  numbered,
  useLedgers,
  VM,
} from "../testing/ledger-rig.ts";
import { LEDGER_LIMITS } from "./limits.ts";

const rigOf = useLedgers();
const WHY = "row 3 is not what was written";

test("a ledger that a verification found broken takes no act, until it is set aside", async () => {
  const { client, fake, log } = await rigOf();
  append(client, 0, 3);
  await client.flush(VM);
  expect(kindOf(() => client.appendAll(VM, [decision("before")]))).toBe("taken");
  client.foundBroken(VM, WHY);
  expect(kindOf(() => client.appendAll(VM, [decision("after")]))).toBe("ledger_broken");
  expect(() => client.appendAll(VM, [decision("after")])).toThrow(WHY);
  expect(await kindOfLater(client.ready(VM))).toBe("done");
  // It does not start either, and what ends its VM is kept by the service.
  expect(await kindOfLater(client.checkWhole(VM))).toBe("ledger_broken");
  client.appendAll(VM, [lifecycle("stop", "stop")]);
  await client.flush(VM);
  expect(fake.rows("host", "lifecycle_events")).toHaveLength(1);
  expect(client.broken).toMatchObject([{ ledger: VM, reason: WHY }]);
  expect(log.filter(({ message }) => message === "a ledger is broken")).toHaveLength(1);
  client.foundBroken(VM, "again");
  expect(client.broken).toMatchObject([{ reason: WHY }]);

  await client.archive(VM);
  expect(client.broken).toEqual([]);
  expect(client.status.reason).toBeNull();
  expect(kindOf(() => client.appendAll(VM, [decision("new")]))).toBe("taken");
  expect(await kindOfLater(client.checkWhole(VM))).toBe("done");
});

test("no head is signed of what was found broken, so that its checkpoint stays what it was", async () => {
  const { client, fake } = await rigOf();
  append(client, 0, 2);
  await client.finish(VM);
  expect(fake.signed.get(VM)?.rows).toBe(2);
  append(client, 2, 5);
  await client.flush(VM);
  client.foundBroken(VM, WHY);
  await client.finish(VM);
  expect(fake.signed.get(VM)?.rows).toBe(2);
  expect(await client.checkpointOf(VM)).toMatchObject({ rows: 2 });
});

test("what is being written when it is found is written; what waits behind it is kept by the service", async () => {
  const [began, gate] = [defer<void>(), defer<void>()];
  const appendGate = () => {
    began.resolve();
    return gate.promise;
  };
  const { client, fake } = await rigOf({ appendGate });
  append(client, 0, 2);
  await began.promise;
  append(client, 2, 5);
  client.foundBroken(VM, WHY);
  expect(kindOf(() => client.appendAll(VM, [decision("e")]))).toBe("ledger_broken");
  gate.resolve();
  await client.flush(VM);
  expect(hashes(fake)).toEqual(numbered(2));
  expect(hashes(fake, "host")).toEqual(numbered(5).slice(2));
  // An answer that comes later does not make it whole again.
  expect(client.broken).toMatchObject([{ ledger: VM }]);
});

test("a ledger that nobody writes to is remembered too, and the status names those that are broken", async () => {
  const { client } = await rigOf();
  append(client, 0, 1, "host");
  await client.flush("host");
  expect(client.status).toEqual({ state: "ok", reason: null });
  client.foundBroken(VM, WHY);
  await client.flush(VM);
  expect(client.status).toEqual({
    state: "ok",
    reason: `the ledger of VM ${VM} is broken; \`capsem ledger verify\` says where`,
  });
  for (let n = 2; n < 2 + LEDGER_LIMITS.brokenNamedMax; n++)
    client.foundBroken(`vm_${`${n}`.repeat(16)}`, WHY);
  const [first, second] = [`vm_${"2".repeat(16)}`, `vm_${"3".repeat(16)}`];
  expect(client.status.reason).toBe(
    `the ledgers of VMs ${VM}, ${first}, ${second} and 1 more are broken; \`capsem ledger verify\` says where`,
  );
  client.foundBroken("host", WHY);
  expect(client.status).toEqual({ state: "away", reason: WHY });
});
