import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { LedgerHead } from "@capsem/api";
import { expect, onTestFinished, test } from "vitest";
import { createHome, homeLayout } from "../home/layout.ts";
import { kindOf, kindOfLater, VM } from "../testing/ledger-rig.ts";
import { Checkpoints } from "./checkpoints.ts";
import { HeadKeeper } from "./head-keeper.ts";
import { openKeys } from "./key-files.ts";
import type { LedgerLink } from "./ledger-link.ts";

const uid = process.getuid?.() ?? -1;

async function rig() {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-heads-")));
  onTestFinished(() => rmSync(home, { recursive: true, force: true }));
  const layout = homeLayout(home);
  await createHome(layout, uid);
  const key = openKeys(layout.keys, uid).head;
  const checkpoints = new Checkpoints(layout.checkpoints, key);
  const signed: LedgerHead[] = [];
  const link = {
    call: async (_role: string, _method: string, { rows, head }: LedgerHead) =>
      void signed.push({ rows, head }),
  };
  const keeper = () =>
    new HeadKeeper({
      ...{ key, checkpoints, monotonicMs: () => 0, log: () => undefined },
      link: () => link as unknown as LedgerLink,
    });
  return { keeper, checkpoints, signed };
}

const honest = { rows: 100, head: "honest" };

test.each([
  ["fewer rows", { rows: 3, head: "rewritten" }],
  ["none", { rows: 0, head: "rewritten" }],
  ["as many, which are others", { rows: 100, head: "rewritten" }],
])("a head of %s is not signed after one of a hundred", async (_, rewritten) => {
  const { keeper, checkpoints, signed } = await rig();
  const first = keeper();
  first.note(VM, honest);
  await first.keep(VM);
  expect(kindOf(() => first.note(VM, rewritten))).toBe("ledger_broken");
  await first.keep(VM);
  // Nor by a keeper that knows nothing but the checkpoint: one of another life, or that had forgotten the ledger.
  await first.forget(VM);
  for (const other of [first, keeper()]) {
    other.note(VM, rewritten);
    expect(await kindOfLater(other.keep(VM))).toBe("ledger_broken");
  }
  expect(signed).toEqual([honest]);
  expect(await checkpoints.read(VM)).toEqual(honest);
});

test("a head that goes on is signed, and one that is kept is not signed again", async () => {
  const { keeper, checkpoints, signed } = await rig();
  const first = keeper();
  first.note(VM, honest);
  await first.keep(VM);
  first.note(VM, honest);
  await first.keep(VM);
  const second = keeper();
  second.note(VM, honest);
  await second.keep(VM);
  const more = { rows: 101, head: "more" };
  second.note(VM, more);
  await second.keep(VM);
  expect(signed).toEqual([honest, more]);
  expect(await checkpoints.read(VM)).toEqual(more);
});
