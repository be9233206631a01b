import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { messageOf } from "@capsem/base";
import { type Decision, reasonGiven } from "@capsem/policy";
import { afterEach, beforeEach, expect, test } from "vitest";
import { notApproved } from "../boundary/refusal.ts";
import { actContextOf } from "../testing/act-context.ts";
import { AskRig, settled } from "../testing/ask-rig.ts";
import type { AskBook } from "./ask-book.ts";

let folder: string;
let rig: AskRig;
let book: AskBook;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "ask-words-"));
  rig = new AskRig(folder);
  book = await rig.open();
});
afterEach(async () => {
  await book.close();
  rmSync(folder, { recursive: true });
});

const RULE = "profiles.rules.em";
/** As `decide` says it of a rule without a reason. */
const NONE = `rule "${RULE}"`;
const decided = (reason: string): Decision => ({
  ...rig.asked().decision,
  ...{ rule_id: RULE, reason },
});

test.each([
  ["it reaches out", "it reaches out"],
  [NONE, ""],
])("the reason of %j is shown as %j", async (reason, shown) => {
  expect(reasonGiven(decided(reason))).toBe(shown);
  void book.hold({ ...rig.asked(), decision: decided(reason) }, actContextOf());
  await settled();
  expect(book.list()).toMatchObject([{ rule_id: RULE, reason: shown }]);
});

test.each([
  [
    "ask is set for this tool",
    `Cannot run the command: nobody answered in time; asked by ${RULE}: ask is set for this tool (ask_`,
  ],
  [NONE, `Cannot run the command: nobody answered in time; asked by ${RULE} (ask_`],
])("a call that nobody allowed says who asked and why: %s", async (reason, words) => {
  const held = book.hold({ ...rig.asked(), decision: decided(reason) }, actContextOf());
  await settled();
  await rig.pass(300_000);
  const said = messageOf(
    notApproved({ type: "process.exec", fields: {} }, decided(reason), await held, rig.redactor),
  );
  expect(said.startsWith(words), said).toBe(true);
  expect(said).toBe(`${words.slice(0, -4)}${book.list()[0]?.id})`);
});
