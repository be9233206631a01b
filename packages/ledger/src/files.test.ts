import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HOST_LEDGER } from "@capsem/api";
import { expect, test } from "vitest";
import { archiveLedger, ledgerIds, removeLedger } from "./files.ts";
import { listLedgers } from "./list.ts";
import { ledgerPaths } from "./paths.ts";
import { ReaderPool } from "./reader.ts";
import { runSlices } from "./slices.ts";
import { LEDGER, LedgerRig } from "./testing/ledger-rig.ts";
import { act, eventId, row } from "./testing/rows.ts";

const LIFE = { decision: "allow", outcome: "done" } as const;

function list(rig: LedgerRig, faults: string[] = []) {
  return runSlices(listLedgers(rig.root, new ReaderPool(rig.root), (ledger) => faults.push(ledger))).ledgers;
}

test("a list has every ledger with its size, its times and the name that its VM had last", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.append([
    row("lifecycle_events", { event_id: eventId(1), time_ms: 10, action: "create", vm_name: "old", ...LIFE }),
    row("lifecycle_events", { event_id: eventId(2), time_ms: 20, action: "rename", vm_name: "new", ...LIFE }),
    row("lifecycle_events", { event_id: eventId(3), time_ms: 30, action: "stop", ...LIFE }),
  ]);
  rig.open("g", { ledger: HOST_LEDGER });
  // A create that was refused: its VM never was, and the service's own ledger is not it.
  const refused = { ...LIFE, decision: "block", outcome: "blocked", vm_name: "never" } as const;
  const create = row("lifecycle_events", { event_id: eventId(4), time_ms: 40, action: "create", ...refused });
  rig.append([create], { ledger: HOST_LEDGER, generation: "g" });
  writeFileSync(join(rig.root, "not-a-ledger"), "");
  const [host, vm, ...others] = list(rig);
  expect(others).toEqual([]);
  expect(host).toMatchObject({ vm_id: "host", name: null, rows: 1, first_ms: 40, archived: 0 });
  expect(vm).toMatchObject({ vm_id: LEDGER, name: "new", rows: 3, first_ms: 10, last_ms: 30, archived: 0 });
});

test("an archived ledger is set aside whole, with its log, and the next one begins anew", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.append(act({ n: 1 }));
  rig.writer.close("service", LEDGER);
  const name = archiveLedger(rig.root, LEDGER, rig.clock.now);
  expect(name).toBe("2025-10-09T08-53-20-000Z");
  const { archive, database } = ledgerPaths(rig.root, LEDGER);
  expect(readdirSync(join(archive, name))).toContain("session.db");
  expect(existsSync(database)).toBe(false);
  expect(list(rig)).toMatchObject([{ vm_id: LEDGER, rows: 0, archived: 1 }]);
  expect(rig.open("g2").rows).toBe(0);
  rig.writer.close("service", LEDGER);
  // At the same moment, too.
  expect(archiveLedger(rig.root, LEDGER, rig.clock.now)).toBe(`${name}-2`);
  expect(() => archiveLedger(rig.root, LEDGER, rig.clock.now)).toThrow("there is none");
});

test("files that cannot change their folder are copied there, whole", ({ skip }) => {
  const rig = new LedgerRig();
  rig.open();
  const { rows, head } = rig.append(act({ n: 1 }));
  rig.writer.close("service", LEDGER);
  const { archive } = ledgerPaths(rig.root, LEDGER);
  mkdirSync(archive);
  // Another file system stands for a kernel that lets no file leave its folder.
  if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", archive]).status !== 0) {
    const reason = "files that cannot be moved, because no other file system can be mounted here";
    console.log(`skipped: ${reason}`);
    skip(reason);
  }
  try {
    const name = archiveLedger(rig.root, LEDGER, rig.clock.now);
    expect(existsSync(ledgerPaths(rig.root, LEDGER).database)).toBe(false);
    cpSync(join(archive, name), ledgerPaths(rig.root, LEDGER).folder, { recursive: true });
    expect(rig.verify()).toMatchObject({ is_whole: true, rows, head });
  } finally {
    spawnSync("umount", ["-l", archive]);
  }
});

test("a removed ledger is gone with its archives, and one that is not there is no error", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.writer.close("service", LEDGER);
  archiveLedger(rig.root, LEDGER, rig.clock.now);
  removeLedger(rig.root, LEDGER);
  expect(ledgerIds(rig.root)).toEqual([]);
  removeLedger(rig.root, LEDGER);
  expect(() => removeLedger(rig.root, "../x")).toThrow("it is no id");
});

test("a ledger that cannot be read is in the list, and said", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.writer.close("service", LEDGER);
  writeFileSync(ledgerPaths(rig.root, LEDGER).database, "no database".repeat(100));
  const faults: string[] = [];
  expect(list(rig, faults)).toMatchObject([{ vm_id: LEDGER, rows: 0, first_ms: null }]);
  expect(faults).toEqual([LEDGER]);
});
