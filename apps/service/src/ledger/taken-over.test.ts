// The ledger process is somebody else's: what it says of its chain is believed by nobody.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { homeLayout } from "../home/layout.ts";
import { append, hashes, kindOf, numbered, useLedgers, VM } from "../testing/ledger-rig.ts";

const rigOf = useLedgers();

test.each([
  ["fewer rows than it had", 3],
  ["as many rows as it had", 6],
  ["more rows than it was sent", 100],
])(
  "a rewritten head of %s is not signed; the ledger is broken, and what comes next is kept",
  async (_, rows) => {
    const { client, fake, home, log } = await rigOf();
    append(client, 0, 5);
    await client.finish(VM);
    const path = join(homeLayout(home).checkpoints, `${VM}.json`);
    const honest = readFileSync(path, "utf8");
    expect(JSON.parse(honest)).toMatchObject({ rows: 5 });
    fake.faults.lie = (head, ledger) => (ledger === VM ? { rows, head: "f".repeat(64) } : head);
    append(client, 5, 6);
    await client.flush(VM);
    delete fake.faults.lie;
    expect(client.broken).toMatchObject([{ ledger: VM }]);
    expect(kindOf(() => append(client, 6, 7))).toBe("ledger_broken");
    await client.finish(VM);
    expect(fake.signed.get(VM)?.rows).toBe(5);
    expect(readFileSync(path, "utf8")).toBe(honest);
    expect(log).toContainEqual(expect.objectContaining({ level: "error", message: "a ledger is broken" }));
    await client.flush("host");
    expect(hashes(fake, "host")).toEqual(["h5"]);
  },
);

test("an honest ledger that dies everywhere is never taken for another", async () => {
  const { client, fake } = await rigOf();
  const points = ["before commit", "after commit", "at open", "after open", "at sign", "at close"] as const;
  let n = 0;
  for (let round = 0; round < 12; round++) {
    append(client, n, n + 40);
    fake.faults.dieAt = points[round % points.length] ?? null;
    await client.ready(VM);
    append(client, n + 40, n + 80);
    n += 80;
    await client.flush(VM);
    if (round % 3 === 0) await client.finish(VM);
  }
  expect(client.broken).toEqual([]);
  expect(hashes(fake)).toEqual(numbered(n));
});
