import { expect, test } from "vitest";
import { anyRow, checkExport, checkedRow, fuzzReads, hashed, randomOf } from "./ledger.fuzz.ts";
import type { Row } from "./row.ts";
import { LEDGER, LedgerRig } from "./testing/ledger-rig.ts";

const SEEDS = [1, 20_000, Math.floor(Math.random() * 2 ** 31)];

for (const seed of SEEDS) {
  test(`whatever rows come and whatever is asked, from seed ${seed}`, () => {
    console.info(`ledger.fuzz seed ${seed}`);
    const random = randomOf(seed);
    const rig = new LedgerRig();
    rig.open();
    let count = 0;
    for (let round = 0; round < 60; round++) {
      const rows = Array.from({ length: 1 + random(20) }, () => checkedRow(anyRow(random))).filter(
        (row): row is Row => row !== null,
      );
      const again = Math.min(random(4), count);
      const append = { ledger: LEDGER, producer: "service", generation: "g1", first: count + 1, rows };
      const [end] = rig.writer.append([{ ...append, hashes: hashed(rows, count + 1) }]);
      expect(end?.kind).toBe("taken");
      count += rows.length;
      if (again > 0) {
        const [skipped] = rig.writer.append([
          {
            ...append,
            first: count - again + 1,
            rows: rows.slice(0, again),
            hashes: hashed(rows.slice(0, again), 1),
          },
        ]);
        expect(skipped).toMatchObject({ kind: "taken", standing: { rows: count } });
      }
      if (round % 20 === 19) rig.restart();
      if (round % 20 === 19) rig.open();
    }
    expect(rig.verify()).toMatchObject({ is_whole: true, rows: count, fault: null });
    const reader = rig.reader();
    for (let ask = 0; ask < 300; ask++) fuzzReads(reader, random);
    checkExport(reader, count);
  }, 60_000);
}
