import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SecretRedactor } from "../credential/redactor.ts";
import { LOG_LIMITS } from "../limits.ts";
import type { OwnerStart } from "../owner/owner-start.ts";
import { FindingBook } from "../trouble/finding-book.ts";
import { panicOf, writePanic } from "../trouble/panic.ts";
import { redactedPanic } from "../trouble/redacted-panic.ts";
import { createLineRedactor, type LineRedactor, plainLines } from "./line-redactor.ts";
import { createLineSplitter } from "./line-splitter.ts";
import { LogFile } from "./log-file.ts";
import { redactedStarter } from "./redacted-starter.ts";
import { createServiceLog } from "./service-log.ts";
import { VmLogs } from "./vm-logs.ts";

const SECRET = 'canary-"91e0\\-of-the-test';
const PIN = "8174625301";
const REF = `credential:blake3:${"ab".repeat(32)}`;
const MARK = `[${REF}]`;
const redactor = new SecretRedactor();
redactor.add(REF, SECRET);
redactor.add(`credential:blake3:${"cd".repeat(32)}`, PIN);
const redact = createLineRedactor(redactor);

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "capsem-redact-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** All that lies in the folder. */
function stored(): string {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
  return files.map((file) => readFileSync(join(file.parentPath, file.name), "utf8")).join("\n");
}

/** The beginning of it is what a cut would leave. */
const CANARY = /canary-|91e0|8174625301/;

test.each([
  { what: "words", line: `export KEY=${SECRET}`, shown: `export KEY=${MARK}` },
  { what: "JSON", line: JSON.stringify({ a: SECRET, b: 1 }), shown: `{"a":"${MARK}","b":1}` },
  {
    what: "JSON that escapes what it need not",
    line: String.raw`{"a":"\u0063anary-\"91e0\\-of-the-test"}`,
    shown: `{"a":"${MARK}"}`,
  },
  { what: "a key", line: JSON.stringify({ [SECRET]: true }), shown: `{"${MARK}":true}` },
  {
    what: "a line in a line",
    line: JSON.stringify({ source: "guest", line: JSON.stringify({ a: SECRET }) }),
    shown: JSON.stringify({ source: "guest", line: `{"a":"${MARK}"}` }),
  },
  { what: "half of JSON", line: `{"a":${JSON.stringify(SECRET)},"b`, shown: `{"a":"${MARK}","b` },
  { what: "no secret", line: '{ "a" : 1.50 , "a":2 }', shown: '{ "a" : 1.50 , "a":2 }' },
  { what: "nothing", line: "", shown: "" },
])("a line of $what is redacted and stays what it is", ({ line, shown }) => {
  expect(redact(line)).toBe(shown);
  expect(redact(redact(line))).toBe(shown);
});

test("a number that is a secret takes its line along, which stays JSON", () => {
  const line = redact(`{"source":"owner","level":"info","message":"m","pin":${PIN}}`);
  expect(line).not.toContain(PIN);
  expect(JSON.parse(line)).toMatchObject({ source: "owner", level: "info" });
});

test("a line that its owner cut leaves no half of a secret", () => {
  const inner = `${"x".repeat(8_192 - 12)}${SECRET.slice(0, 12)}`;
  const line = JSON.stringify({ source: "console", line: inner });
  expect(line).toMatch(CANARY);
  expect(redact(line)).not.toMatch(CANARY);
  expect(JSON.parse(redact(line)).line).toBe("x".repeat(8_192 - 12));
});

/** Everything that the service stores in words, once each way. */
async function sayAll(lines: LineRedactor, isRedacting: boolean): Promise<void> {
  const file = new LogFile(join(folder, "service.jsonl"), { redact: lines });
  const log = createServiceLog(file, () => 0);
  log("error", `cannot do ${SECRET}`, { cause: SECRET, nested: { list: [SECRET] }, pid: Number(PIN) });
  // One chunk ends in the middle of it, another in the middle of a line that is too long.
  const splitter = createLineSplitter(LOG_LIMITS.lineBytesMax, (line) => file.append(line));
  for (const chunk of [
    `one ${SECRET.slice(0, 9)}`,
    `${SECRET.slice(9)}\n`,
    "é".repeat(LOG_LIMITS.lineBytesMax / 2 - 5),
    `${SECRET}\n`,
  ]) {
    splitter.push(Buffer.from(chunk));
  }
  splitter.end();
  await file.close();
  const logs = await VmLogs.open(join(folder, "vm"));
  const starter = { start: async (start: OwnerStart) => ownerThatSays(start) };
  await redactedStarter(starter, () => lines).start({
    onLogLine: (line: string) => logs.take(line),
  } as OwnerStart);
  await logs.close();
  const findings = new FindingBook(() => 0, isRedacting ? (text) => redactor.text(text).text : undefined);
  findings.add("server_error", null, `exec failed: ${SECRET}`, `${"x".repeat(490)}${SECRET}`);
  const thrown = new Error(`${"x".repeat(980)}${SECRET}`);
  const panic = panicOf({ process: "service", pid: 1, time: new Date(0), thrown });
  writePanic(join(folder, "panics"), isRedacting ? redactedPanic(redactor, panic) : panic);
  writePanic(join(folder, "seen"), {
    ...panic,
    message: JSON.stringify([logs.tail(), findings.shown({ sinceMs: null, vmId: null })]),
  });
}

function ownerThatSays({ onLogLine }: OwnerStart): never {
  for (const line of [
    JSON.stringify({ source: "console", line: `login: ${SECRET}` }),
    JSON.stringify({ source: "guest", line: JSON.stringify({ message: SECRET }) }),
    JSON.stringify({ source: "owner", level: "error", message: "failed", cause: SECRET }),
    `Error: ${SECRET}`,
  ]) {
    onLogLine(line);
  }
  return undefined as never;
}

test("without the redactor a canary is in every file, with it in none", async () => {
  await sayAll(plainLines, false);
  expect(stored().match(new RegExp(CANARY, "g"))?.length).toBeGreaterThan(12);
  rmSync(folder, { recursive: true, force: true });
  folder = mkdtempSync(join(tmpdir(), "capsem-redact-"));
  await sayAll(redact, true);
  expect(stored()).not.toMatch(CANARY);
  expect(stored().split(MARK).length).toBeGreaterThan(8);
  for (const line of readFileSync(join(folder, "vm", "owner.jsonl"), "utf8")
    .trim()
    .split("\n"))
    JSON.parse(line);
});

test("half a character at the end of a line that was cut is no part of it", () => {
  const lines: string[] = [];
  const splitter = createLineSplitter(8, (line) => lines.push(line));
  splitter.push(Buffer.from("abcdef💥x\nab💥💥\n"));
  expect(lines).toEqual(["abcdef", "ab💥"]);
});
