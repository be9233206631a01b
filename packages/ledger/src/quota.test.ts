import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { LEDGER_LIMITS } from "./limits.ts";
import { LEDGER, LedgerRig } from "./testing/ledger-rig.ts";
import { act, ending, eventId, intent, row, type WireRow } from "./testing/rows.ts";

const MIB = 1024 * 1024;

function kindOf(work: () => unknown): string {
  try {
    work();
    return "taken";
  } catch (thrown) {
    return thrown instanceof Failure ? thrown.kind : String(thrown);
  }
}

/** A ledger with one act open, filled to its quota. */
function full(): LedgerRig {
  const rig = new LedgerRig(2 * MIB);
  rig.open();
  rig.append(intent({ n: 1 }));
  for (
    let n = 100;
    kindOf(() => rig.append(act({ n, stdoutPreview: "x".repeat(100_000) }))) === "taken";
    n++
  ) {
    if (n > 1_000) throw new Error("it never fills");
  }
  return rig;
}

/** The decision of an act that a full ledger does not hold up, with all that belongs to it. */
function lifecycle(n: number, type: string): WireRow[] {
  const rows = intent({ n, body: JSON.stringify({ type, fields: { "vm.lifecycle.action": "stop" } }) });
  return rows.map((cells) => cells.map((cell) => (cell === "process.exec" ? type : cell)));
}

test("a full ledger refuses work and says so, stays whole, and takes what ends and what must be", () => {
  const rig = full();
  expect(kindOf(() => rig.append(act({ n: 2 })))).toBe("ledger_full");
  expect(kindOf(() => rig.append(intent({ n: 2 })))).toBe("ledger_full");
  expect(kindOf(() => rig.append([ending({ n: 1 })]))).toBe("taken");
  // It has ended: another end is a row like any other.
  expect(kindOf(() => rig.append([ending({ n: 1 })]))).toBe("ledger_full");
  expect(kindOf(() => rig.append(lifecycle(3, "vm.lifecycle")))).toBe("taken");
  expect(
    kindOf(() =>
      rig.append([
        row("lifecycle_events", { event_id: eventId(3), action: "stop", decision: "allow", outcome: "done" }),
      ]),
    ),
  ).toBe("taken");
  // The setting that gives it more room.
  expect(kindOf(() => rig.append(lifecycle(4, "settings.change")))).toBe("taken");
  expect(kindOf(() => rig.append(lifecycle(5, "process.exec_complete")))).toBe("ledger_full");
  // One row of another kind, and the whole append is refused.
  expect(kindOf(() => rig.append([...lifecycle(6, "vm.lifecycle"), ...act({ n: 7 })]))).toBe("ledger_full");
  expect(rig.verify().is_whole).toBe(true);
});

test("the reserve ends too, and then a full ledger is still opened, ended and read", () => {
  const rig = full();
  const preview = "y".repeat(200_000);
  for (let n = 1_000; ; n++) {
    const rows = [
      ...lifecycle(n, "vm.lifecycle"),
      row("lifecycle_events", {
        event_id: eventId(n),
        action: "stop",
        detail: preview,
        decision: "allow",
        outcome: "done",
      }),
    ];
    if (kindOf(() => rig.append(rows)) !== "taken") break;
    if (n > 5_000) throw new Error("its reserve never ends");
  }
  expect(kindOf(() => rig.append([ending({ n: 1 })]))).toBe("ledger_full");
  expect(rig.open("g2").interrupted).toBe(1);
  expect(rig.verify().is_whole).toBe(true);
  const { bytes } = rig.open("g3");
  expect(bytes).toBeLessThan(2 * MIB + LEDGER_LIMITS.reserveBytes + 2 * MIB);
});

test("more room is room at once", () => {
  const rig = full();
  rig.writer.limit(64 * MIB);
  expect(kindOf(() => rig.append(act({ n: 2 })))).toBe("taken");
});

test("a log of changes that is not yet written back does not make a ledger full", () => {
  const rig = new LedgerRig(8 * MIB);
  rig.open();
  // Written over and over, the same pages fill the log and not the database.
  for (let n = 1; n <= 700; n++) rig.append(act({ n }));
  expect(rig.open("g2")).toMatchObject({ rows: 2_800 });
  expect(rig.reader(LEDGER).rows()).toBe(2_800);
});

test("a log that somebody reads or writes back at this moment does not make a ledger full", () => {
  const rig = new LedgerRig(8 * MIB);
  rig.open();
  rig.append(act({ n: 1 }));
  // What it reads holds the log where it is, as another thread does that writes it back.
  const held = rig.reader(LEDGER).prepare("SELECT n FROM ledger_chain").iterate();
  held.next();
  for (let n = 2; n <= 700; n++) {
    const { bytes } = rig.append(act({ n }));
    expect(bytes).toBeLessThan(8 * MIB);
  }
  held.return?.();
  expect(rig.append(act({ n: 701 })).bytes).toBeLessThan(8 * MIB);
});

test("what is in a log that is held counts as the pages that it becomes", () => {
  const rig = new LedgerRig(2 * MIB);
  rig.open();
  rig.append(act({ n: 1 }));
  const held = rig.reader(LEDGER).prepare("SELECT n FROM ledger_chain").iterate();
  held.next();
  let n = 2;
  while (kindOf(() => rig.append(act({ n, stdoutPreview: "x".repeat(100_000) }))) === "taken") n++;
  held.return?.();
  expect(n).toBeLessThan(30);
});
