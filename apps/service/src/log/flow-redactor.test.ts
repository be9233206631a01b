import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { CREDENTIAL_LIMITS } from "../credential/limits.ts";
import { SecretRedactor } from "../credential/redactor.ts";
import { createFlowRedactor } from "./flow-redactor.ts";
import { createLineRedactor } from "./line-redactor.ts";

const REF = `credential:blake3:${"ab".repeat(32)}`;
const MARK = `[${REF}]`;
/** Nothing in it comes twice. */
const SECRET = createHash("shake256", { outputLength: 225 }).update("canary").digest("base64url");
const redactor = new SecretRedactor();
redactor.add(REF, SECRET);

/** As `base64 file > /dev/console` comes, in lines of this length. */
function linesOf(width: number, encoding: BufferEncoding = "base64"): string[] {
  return (
    Buffer.from(`x${SECRET}`)
      .toString(encoding)
      .match(new RegExp(`.{1,${width}}`, "g")) ?? []
  );
}
const asConsole = (line: string) => JSON.stringify({ source: "console", line });
const wordsOf = (line: string): string => JSON.parse(line).line.replaceAll(MARK, "");

test("the attack: lines that are looked at one by one keep most of what was wrapped", () => {
  const redact = createLineRedactor(redactor);
  const left = linesOf(76).map((line) => wordsOf(redact(asConsole(line))));
  expect(left.join("").length).toBeGreaterThan(150);
});

test.each([1, 5, 7, 8, 40, 64, 76, 200])(
  "in their order, lines of %i characters keep nothing of it",
  (width) => {
    for (const encoding of ["base64", "base64url", "hex"] as const) {
      const redact = createFlowRedactor(redactor);
      redact(asConsole("before it"));
      const left = linesOf(width, encoding).map((line) => wordsOf(redact(asConsole(`  ${line}`))).trim());
      // The beginning, which is too short to be told from any other text, and characters with bits of neighbours.
      expect(left.join("").length, encoding).toBeLessThan(6 + CREDENTIAL_LIMITS.formCharactersMin);
    }
  },
);

test("lines of other sources may come between", () => {
  const redact = createFlowRedactor(redactor);
  const left = linesOf(30).map((line) => {
    redact(JSON.stringify({ source: "guest", line: "something else" }));
    redact(JSON.stringify({ source: "owner", message: "a record" }));
    redact("words of nobody");
    return wordsOf(redact(asConsole(line)));
  });
  expect(left.join("").length).toBeLessThan(12);
});

test("lines without a secret stay as they are, before, between and after", () => {
  const redact = createFlowRedactor(redactor);
  const plain = [
    "",
    "  boot: ok",
    "{",
    '{"a":1}',
    SECRET.slice(0, 7),
    asConsole("login:"),
    asConsole("  indented \t"),
  ];
  for (const line of [...plain, ...plain]) expect(redact(line)).toBe(line);
  for (const line of linesOf(76)) redact(asConsole(line));
  for (const line of plain) expect(redact(line)).toBe(line);
  expect(createFlowRedactor(new SecretRedactor())(SECRET)).toBe(SECRET);
});

test("sources that somebody makes up are bounded, and theirs are redacted one by one", () => {
  const redact = createFlowRedactor(redactor);
  for (let at = 0; at < 1_000; at += 1) {
    const line = redact(JSON.stringify({ source: `made up ${at}`, line: `is ${SECRET}` }));
    expect(line).not.toContain(SECRET.slice(0, 9));
  }
});

test("a line that was cut is not followed, and keeps no beginning", () => {
  const redact = createFlowRedactor(redactor);
  expect(redact(`it is ${SECRET.slice(0, 6)}`, true)).toBe("it is ");
  expect(redact(SECRET.slice(6, 20))).toBe(SECRET.slice(6, 20));
});
