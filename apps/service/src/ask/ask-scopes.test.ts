import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Asked } from "../boundary/parts.ts";
import { actContextOf } from "../testing/act-context.ts";
import { AskRig, settled, VM } from "../testing/ask-rig.ts";
import type { AskBook } from "./ask-book.ts";

let folder: string;
let rig: AskRig;
let book: AskBook;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "capsem-scopes-"));
  rig = new AskRig(folder);
  book = await rig.open();
});
afterEach(async () => {
  await book.close();
  rmSync(folder, { recursive: true, force: true });
});

const me = actContextOf();
const NAMED = { "vm.name": "dev" } as const;
const corporate = (asked: Asked): Asked => ({
  ...asked,
  decision: { ...asked.decision, rule_id: "corp.rules.x" },
});

async function shown(asked: Asked, context = me) {
  void book.hold(asked, context);
  await settled();
  const [ask, ...more] = book.list("pending");
  if (ask === undefined || more.length > 0) throw new Error("one waits");
  return ask;
}

interface Case {
  readonly what: string;
  readonly asked: () => Asked;
  readonly scopes: readonly string[];
  /** What each other scope is refused with. */
  readonly refused: Readonly<Partial<Record<"vm" | "always", readonly [kind: string, why: string]>>>;
}

test.each<Case>([
  {
    what: "a command in a VM with a name",
    asked: () => rig.asked("curl a", VM, NAMED),
    scopes: ["once", "vm", "always"],
    refused: {},
  },
  {
    what: "the corporation's rule",
    asked: () => corporate(rig.asked("curl a", VM, NAMED)),
    scopes: ["once", "vm"],
    refused: { always: ["locked", "a rule of the corporation"] },
  },
  {
    what: "a command that was too long to be kept whole",
    asked: () => rig.asked(`curl ${"x".repeat(70_000)}`, VM, NAMED),
    scopes: ["once", "vm"],
    refused: { always: ["wrong_state", "cut"] },
  },
  {
    what: "an act of no VM",
    asked: () => rig.asked("curl a", null),
    scopes: ["once", "always"],
    refused: { vm: ["wrong_state", "it is about none"] },
  },
])(
  "an ask about $what says what an approval may be for, and refuses the rest with the reason",
  async (row) => {
    const ask = await shown(row.asked());
    expect(ask.scopes).toEqual(row.scopes);
    for (const [scope, [kind, why]] of Object.entries(row.refused) as ["vm" | "always", [string, string]][]) {
      await expect(book.resolve(ask.id, { approve: true, scope }, me)).rejects.toMatchObject({
        kind,
        message: expect.stringContaining(why),
      });
    }
    // It waits on, and what it says holds.
    const last = row.scopes.at(-1) as "once" | "vm" | "always";
    expect(await book.resolve(ask.id, { approve: true, scope: last }, me)).toMatchObject({
      scope: last,
      scopes: [],
    });
  },
);

test("of a VM that is only being made there is no approval for it", async () => {
  rig.gone.add(VM.id);
  const ask = await shown(rig.asked("curl a", VM, NAMED));
  expect(ask.scopes).not.toContain("vm");
  await expect(book.resolve(ask.id, { approve: true, scope: "vm" }, me)).rejects.toMatchObject({
    kind: "wrong_state",
    message: expect.stringContaining("only being made"),
  });
});

test("an act that held a secret has no rule for always, and none is written", async () => {
  rig.redactor.add(`credential:blake3:${"ab".repeat(32)}`, "a-secret-of-the-test");
  const ask = await shown(rig.asked("curl a-secret-of-the-test", VM, NAMED));
  expect(ask.scopes).toEqual(["once", "vm"]);
  await expect(book.resolve(ask.id, { approve: true, scope: "always" }, me)).rejects.toMatchObject({
    kind: "wrong_state",
    message: expect.stringContaining("held a secret"),
  });
  expect(rig.edits).toEqual([]);
});

test("scopes are the same over a restart, and none are left when the ask is over", async () => {
  const leaves = new AbortController();
  const { scopes } = await shown(rig.asked("curl a", VM, NAMED), actContextOf({ signal: leaves.signal }));
  await book.close();
  book = await rig.open();
  expect(book.list()).toMatchObject([{ scopes, is_held: false }]);
  rig.gone.add(VM.id);
  book.forgetVm(VM.id);
  expect(book.list()).toMatchObject([{ state: "expired", scopes: [] }]);
});

test("who asked by the gateway is shown with the token; the row has both apart", async () => {
  const gateway = actContextOf({ requester: { kind: "gateway", name: "gateway" }, tokenId: "1a2b3c4d" });
  const ask = await shown(rig.asked("curl a", VM, NAMED), gateway);
  expect(ask.requester).toBe("gateway (token 1a2b3c4d)");
  expect(rig.told[0]?.requester).toBe("gateway (token 1a2b3c4d)");
  expect(rig.rows[0]).toMatchObject({ requester: "gateway", token_id: "1a2b3c4d" });
  await book.close();
  book = await rig.open();
  expect(book.list()).toMatchObject([{ requester: "gateway (token 1a2b3c4d)" }]);
  await rig.pass(400_000);
  expect(rig.rows.at(-1)).toMatchObject({ requester: "gateway", token_id: "1a2b3c4d", state: "expired" });
});

test("an ask whose caller left is over, and says so wherever it is shown", async () => {
  const leaves = new AbortController();
  const ask = await shown(rig.asked("curl a", VM, NAMED), actContextOf({ signal: leaves.signal }));
  expect(ask.is_held).toBe(true);
  leaves.abort();
  await settled();
  const over = { id: ask.id, state: "expired", note: "the caller left", is_held: false };
  expect(book.list()).toMatchObject([over]);
  expect(rig.told.at(-1)).toMatchObject(over);
});

test("an ask that its client left open is not shown as waited for when the last call that waited is gone", async () => {
  const asked = rig.asked("curl a", VM, NAMED);
  await book.hold({ ...asked, isLater: true }, me);
  const leaves = new AbortController();
  const other = { ...rig.asked("curl a", VM, NAMED), digest: asked.digest };
  void book.hold(other, actContextOf({ signal: leaves.signal }));
  await settled();
  expect(rig.told.at(-1)).toMatchObject({ state: "pending", is_held: true });
  leaves.abort();
  await settled();
  expect(book.list()).toMatchObject([{ state: "pending", is_held: false }]);
  expect(rig.told.at(-1)).toMatchObject({ state: "pending", is_held: false });
});
