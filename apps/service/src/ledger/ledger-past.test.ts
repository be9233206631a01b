import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { homeLayout } from "../home/layout.ts";
import {
  append,
  decision,
  hashes,
  kindOfLater,
  lifecycle,
  numbered,
  opens,
  useLedgers,
  VM,
} from "../testing/ledger-rig.ts";

const rigOf = useLedgers();

test("a finished ledger is signed, in its checkpoint and closed; the next service holds it to that", async () => {
  const first = await rigOf();
  append(first.client, 0, 50);
  await first.client.finish(VM);
  const { checkpoints } = homeLayout(first.home);
  const kept = JSON.parse(readFileSync(join(checkpoints, `${VM}.json`), "utf8"));
  expect(kept).toMatchObject({ ledger: VM, rows: 50 });
  expect(first.fake.signed.get(VM)).toMatchObject({
    rows: 50,
    signature: kept.signature,
    key_id: kept.key_id,
  });
  await first.client.close();

  const second = await rigOf({}, { home: first.home });
  await second.client.checkWhole(VM);
  append(second.client, 50, 60);
  await second.client.flush(VM);
  const { generation } = opens(first.fake)[0] ?? {};
  expect(opens(second.fake)).toMatchObject([{ checkpoint: { rows: 50, head: kept.head }, whole: true }]);
  expect(opens(second.fake)[0]?.generation).not.toBe(generation);
  expect(hashes(second.fake)).toEqual(numbered(60));
});

test("a ledger whose rows were cut off after its checkpoint is broken", async () => {
  const first = await rigOf();
  append(first.client, 0, 50);
  await first.client.close();
  rmSync(join(homeLayout(first.home).ledgers, VM), { recursive: true });
  const second = await rigOf({}, { home: first.home });
  expect(await kindOfLater(second.client.checkWhole(VM))).toBe("ledger_broken");
});

test("one that was opened for a row is walked all the same before its VM runs", async () => {
  const first = await rigOf();
  append(first.client, 0, 5);
  await first.client.close();
  const second = await rigOf({}, { home: first.home });
  append(second.client, 5, 6);
  await second.client.flush(VM);
  await second.client.checkWhole(VM);
  expect(opens(second.fake).map(({ whole }) => whole)).toEqual([false, true]);
  await second.client.checkWhole(VM);
  expect(opens(second.fake)).toHaveLength(2);
});

test("a checkpoint that was altered is not believed", async () => {
  const first = await rigOf();
  append(first.client, 0, 50);
  await first.client.close();
  const path = join(homeLayout(first.home).checkpoints, `${VM}.json`);
  const { writeFileSync } = await import("node:fs");
  writeFileSync(path, readFileSync(path, "utf8").replace('"rows":50', '"rows":49'));
  const second = await rigOf({}, { home: first.home });
  await expect(second.client.checkWhole(VM)).rejects.toThrow(/not what was signed/);
  writeFileSync(path, "{");
  const third = await rigOf({}, { home: first.home });
  await expect(third.client.checkWhole(VM)).rejects.toThrow(/cannot be read/);
});

test("acts that nobody ended are ended as interrupted by the next generation", async () => {
  const first = await rigOf();
  first.client.appendAll(VM, [decision("lost")]);
  await first.client.flush(VM);
  // As if the service had died with it.
  first.fake.faults.isMute = true;
  first.fake.die();
  const second = await rigOf({}, { home: first.home });
  await second.client.ready(VM);
  expect(second.fake.rows(VM, "exec_events")).toMatchObject([{ event_id: "lost", outcome: "interrupted" }]);
  expect(second.log.some(({ message }) => message === "acts were interrupted")).toBe(true);
});

test("a ledger that is finished inside an act stays open for its end, and closes after it", async () => {
  const { client, fake } = await rigOf();
  client.appendAll(VM, [decision("d", "vm.lifecycle")]);
  await client.finish(VM);
  client.appendAll(VM, [lifecycle("d", "delete")]);
  await client.flush(VM);
  await expect.poll(() => fake.closed).toEqual([VM]);
  expect(fake.rows(VM, "lifecycle_events")).toMatchObject([{ outcome: "done" }]);
  expect(fake.signed.get(VM)?.rows).toBe(2);
  client.appendAll(VM, [decision("e")]);
  await client.flush(VM);
  expect(new Set(opens(fake).map(({ generation }) => generation)).size).toBe(2);
  expect(fake.rows(VM)).toHaveLength(3);
});

test("an archived ledger begins anew, and its checkpoint is kept beside it", async () => {
  const { client, fake, home } = await rigOf();
  append(client, 0, 5);
  await client.finish(VM);
  const { checkpoints } = homeLayout(home);
  expect(await kindOfLater(client.archive(VM))).toBe("wrong_state");
  expect(existsSync(join(checkpoints, `${VM}.json`))).toBe(true);
  client.foundBroken(VM, "row 3 is not what was written");
  const name = await client.archive(VM);
  expect(existsSync(join(checkpoints, `${VM}.json`))).toBe(false);
  expect(existsSync(join(checkpoints, `${VM}.${name}.archived`))).toBe(true);
  append(client, 0, 2);
  await client.flush(VM);
  expect(hashes(fake)).toEqual(numbered(2));
});

test("a broken ledger works again once it was set aside", async () => {
  const broken = new Set([VM]);
  const { client, fake } = await rigOf({ broken });
  append(client, 0, 1);
  await client.ready(VM);
  expect(client.broken).toHaveLength(1);
  broken.clear();
  expect(await kindOfLater(client.archive(VM))).toBe("ledger_not_found");
  append(client, 0, 4);
  await client.flush(VM);
  expect(hashes(fake)).toEqual(numbered(4));
});
