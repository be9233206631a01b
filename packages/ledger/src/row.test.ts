import { expect, test } from "vitest";
import { sha256 } from "./chain.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { parseRow } from "./row.ts";
import { columnIndex } from "./schema.ts";
import { act, intent, row, type WireRow } from "./testing/rows.ts";

/** A row of exec with one value replaced. */
function exec(column: string, value: unknown): unknown[] {
  const cells: unknown[] = [...(act({ n: 1 })[3] ?? [])];
  cells[1 + columnIndex("exec_events", column)] = value;
  return cells;
}

function body(text: string, hash = sha256(text)): WireRow {
  return row("event_body_blobs", { hash, kind: "event", original_bytes: 1, body: text });
}

const half = LEDGER_LIMITS.textBytesMax / 2;

test.each<[string, unknown]>([
  ["the rows of an act", null],
  ["null where it may be", exec("cwd", null)],
  ["a text of the whole size", exec("command", "x".repeat(LEDGER_LIMITS.textBytesMax))],
  ["a text of the whole size in UTF-8", exec("command", "é".repeat(half))],
  ["a text with U+0000 and a whole pair", exec("command", "a\0\u{1F600}")],
  ["the largest whole number", exec("stdout_bytes", Number.MAX_SAFE_INTEGER)],
  ["a negative number", exec("exit_code", -1)],
  ["a fraction of a millisecond", exec("duration_ms", 0.25)],
  ["a time with a fraction", exec("time_ms", 1.5)],
  ["a body beyond what a text may have", body("x".repeat(LEDGER_LIMITS.textBytesMax + 1))],
])("%s is taken", (_, value) => {
  const rows = value === null ? act({ n: 1 }) : [value];
  for (const each of rows) expect(parseRow(each)).toBe(each);
});

test.each<[string, unknown, string]>([
  ["no list", { 0: "exec_events" }, "it is no list"],
  ["nothing", [], "it names no table"],
  ["a table that there is not", ["sqlite_schema", 1], "it names no table"],
  ["a word of every object", ["constructor", 1], "it names no table"],
  ["the chain itself", ["ledger_chain", 1, 1, 1, 1, 1, 1, 1], "it names no table"],
  ["a column too few", act({ n: 1 })[3]?.slice(0, -1), "exec_events has 27 columns, it has 26"],
  ["a column too many", [...(act({ n: 1 })[3] ?? []), 1], "it has 28"],
  ["null where a value must be", exec("command", null), "exec_events.command is no text"],
  ["undefined", exec("cwd", undefined), "exec_events.cwd is no text"],
  ["a number for a text", exec("command", 1), "exec_events.command is no text"],
  ["bytes for a text", exec("command", new Uint8Array(3)), "exec_events.command is no text"],
  [
    "a text that is too long",
    exec("command", "x".repeat(LEDGER_LIMITS.textBytesMax + 1)),
    "is over 262144 bytes",
  ],
  ["one that is too long in UTF-8", exec("command", "é".repeat(half + 1)), "is over 262144 bytes"],
  ["half a character", exec("command", "a\uD800b"), "is no well-formed text"],
  ["a text for a number", exec("exit_code", "1"), "is no safe integer"],
  ["a fraction for a whole number", exec("exit_code", 1.5), "is no safe integer"],
  ["a number beyond the safe ones", exec("stdout_bytes", 2 ** 53), "is no safe integer"],
  ["a flag that is a boolean", exec("timed_out", true), "is neither 0 nor 1"],
  ["a flag that is 2", exec("timed_out", 2), "is neither 0 nor 1"],
  ["infinity", exec("duration_ms", Number.POSITIVE_INFINITY), "is no finite number"],
  ["no number", exec("duration_ms", Number.NaN), "is no finite number"],
  ["a time before all", exec("time_ms", -1), "is no time"],
  ["a time that no date has", exec("time_ms", 8.65e15), "is no time"],
  ["text that is no JSON", exec("env_names", "[1,"), "exec_events.env_names is no JSON"],
  ["an outcome that there is not", exec("outcome", "fine"), "is none of done, failed"],
  ["a decision that there is not", exec("decision", "maybe"), "is none of allow, ask, block"],
  ["a body of another hash", body("x", sha256("y")), "event_body_blobs.hash is not the SHA-256 of its body"],
  ["a body that is too long", body("x".repeat(LEDGER_LIMITS.bodyBytesMax + 1)), "is over 10485760 bytes"],
])("%s is a bad row", (_, value, words) => {
  expect(() => parseRow(value)).toThrow("Cannot append row: ");
  expect(() => parseRow(value)).toThrow(words);
});

test("an event beside its decision is the one of its hash", () => {
  const [decision = []] = intent({ n: 1, isInRow: true });
  expect(parseRow(decision)).toBe(decision);
  const other = [...decision.slice(0, -1), "{}"];
  expect(() => parseRow(other)).toThrow(
    "security_decision_events.event_hash is not the SHA-256 of its event",
  );
});

test("an action of a decision is one of the three", () => {
  const [, decision = []] = intent({ n: 1 });
  const cells = [...decision];
  cells[1 + columnIndex("security_decision_events", "action")] = "rewrite";
  expect(() => parseRow(cells)).toThrow("security_decision_events.action is none of allow, ask, block");
});
