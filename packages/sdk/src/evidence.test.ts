import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client } from "./client.ts";
import type { LedgerLine } from "./ledgers.ts";
import { ledgersOf } from "./ledgers.ts";
import { type Rig, startWays, WAYS } from "./testing/ways.ts";
import type { Transport } from "./transport.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startWays();
});
afterAll(() => rig.close());

async function all<T>(source: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const each of source) found.push(each);
  return found;
}

describe.each(WAYS)("over the %s", (way) => {
  let client: Client;
  beforeAll(() => {
    client = rig.client(way);
  });

  test("what a VM did is iterated over its pages, also when the VM is gone", async () => {
    const vm = await client.create({ name: "past" });
    const commands = Array.from({ length: 5 }, (_, at) => `echo ${at}`);
    for (const command of commands) await vm.exec(command);
    await vm.delete();
    expect((await all(vm.timeline())).map(({ title }) => title)).toEqual(commands);
    const newest = await all(vm.timeline({ newest: true, limit: 2 }));
    expect(newest.map(({ title }) => title)).toEqual(commands.slice(3).reverse());
    const first = await vm.timeline({ limit: 2 }).page();
    expect(first.entries).toHaveLength(2);
    const cursor = first.next ?? "";
    expect((await all(vm.timeline({ cursor }))).map(({ title }) => title)).toEqual(commands.slice(2));
    expect((await all(vm.history())).map(({ command }) => command)).toEqual([...commands].reverse());
    expect((await all(vm.history({ search: "3", limit: 9 }))).map(({ command }) => command)).toEqual([
      "echo 3",
    ]);
    expect(
      (await all(vm.securityEvents({ action: "allow", limit: 3 }))).map(({ event }) => event),
    ).toHaveLength(3);
    expect(await all(vm.securityEvents({ action: "block" }))).toEqual([]);
    expect(await vm.stats()).toMatchObject({ commands: 5, decisions: { allow: 5 } });
    expect(await vm.statsDetail()).toMatchObject({ exec: { count: 5 } });
  });

  test("pages are asked for as they are read, and not beyond the limit", async () => {
    const vm = await client.create();
    for (let at = 0; at < 3; at += 1) await vm.exec("true");
    const count = rig.service.seen.length;
    const listing = vm.timeline({ limit: 2 });
    expect(rig.service.seen.length).toBe(count);
    expect((await all(listing.pages())).map(({ entries }) => entries.length)).toEqual([2]);
    expect(rig.service.seen.slice(count)).toHaveLength(1);
    for await (const entry of vm.timeline()) {
      expect(entry.outcome).toBe("done");
      break;
    }
    await vm.delete();
  });

  test("ledgers are listed, verified, set aside and exported", async () => {
    const vm = await client.create({ name: "broken" });
    await vm.exec("echo one");
    await vm.delete();
    const found = (await client.ledgers.list()).find(({ vm_id: id }) => id === vm.id);
    expect(found).toMatchObject({ name: "broken", has_vm: false, rows: 1 });
    expect(await client.ledgers.verify(vm.id)).toMatchObject({ is_whole: false, fault: { row: 2 } });
    expect((await client.ledgers.archive(vm.id)).vm_id).toBe(vm.id);
    expect((await client.ledgers.verify(vm.id)).is_whole).toBe(true);
    await expect(client.ledgers.archive(vm.id)).rejects.toMatchObject({ kind: "wrong_state" });
    const exported = client.ledgers.export(vm.id);
    const lines: LedgerLine[] = await all(exported);
    expect(lines).toMatchObject([
      { capsem_ledger: 1, ledger: vm.id },
      { n: 1, table: "exec_events", row: [expect.any(String), "echo one"] },
    ]);
    const text = Buffer.concat(await all(exported.bytes())).toString("utf8");
    expect(
      text
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line)),
    ).toEqual(lines);
    await expect(client.ledgers.verify("vm_aaaaaaaaaaaaaaaa")).rejects.toMatchObject({
      kind: "ledger_not_found",
    });
  });
});

/** An export whose bytes come in these parts. */
function exportOf(...parts: string[]): AsyncIterable<LedgerLine> {
  async function* body() {
    for (const part of parts) yield new TextEncoder().encode(part);
  }
  const answer = { status: 200, headers: {}, body: body(), cancel: () => undefined };
  const transport: Transport = {
    request: async () => answer,
    socket: () => Promise.reject(new Error("none")),
    close: () => undefined,
  };
  return ledgersOf(transport).export("host");
}

test("an export's lines may be cut anywhere, and one that breaks off is not taken for whole", async () => {
  expect(await all(exportOf('{"a":', "1}\n{", '"b":2}', "\n"))).toEqual([{ a: 1 }, { b: 2 }]);
  expect(await all(exportOf())).toEqual([]);
  for (const parts of [['{"a":1}\n{"b"'], ["[1]\n"], ["x\n"], ["\n"]])
    await expect(all(exportOf(...parts)), parts.join("|")).rejects.toMatchObject({ kind: "internal" });
  const failing = exportOf('{"error":{"kind":"ledger_away","reason":"gone","retryable":true}}\n');
  await expect(all(failing)).rejects.toMatchObject({ kind: "ledger_away", retryable: true });
  expect(await all(exportOf('{"table":"x","error":{"kind":"a","reason":"b"}}\n'))).toHaveLength(1);
});
