import { createHash, randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { Random } from "../../../../packages/policy/src/testing/random.ts";
import { costInPasses } from "../../../../tests/support/cost.ts";
import { formsOf } from "./forms.ts";
import { CREDENTIAL_LIMITS } from "./limits.ts";
import { markerOf } from "./marker.ts";
import { Matcher } from "./matcher.ts";
import { SecretRedactor } from "./redactor.ts";

const REF = `credential:blake3:${"ab".repeat(32)}`;
const MARK = markerOf(REF);
/** Nothing in it comes twice, so that each part is found by itself. */
const SECRET = createHash("shake256", { outputLength: 75 }).update("canary").digest("base64url");

function redactorOf(...secrets: string[]): SecretRedactor {
  const redactor = new SecretRedactor();
  for (const [at, secret] of secrets.entries()) {
    redactor.add(at === 0 ? REF : `credential:blake3:${at.toString(16).padStart(64, "0")}`, secret);
  }
  return redactor;
}

function wrap(text: string, width: number, lineEnd: string): string {
  return (text.match(new RegExp(`[^]{1,${width}}`, "g")) ?? []).join(lineEnd);
}

/** As `base64 file` writes it. */
const file = (before: string, after = "\n") => Buffer.from(before + SECRET + after).toString("base64");

const LINE_ENDS = [
  { how: "newlines", lineEnd: "\n" },
  { how: "carriage returns and newlines", lineEnd: "\r\n" },
  { how: "newlines in JSON", lineEnd: String.raw`\n` },
  { how: "both in JSON", lineEnd: String.raw`\r\n` },
  { how: "newlines in JSON in JSON", lineEnd: String.raw`\\n` },
  { how: "newlines in a URL", lineEnd: "%0A" },
  { how: "indented lines", lineEnd: "\n    " },
];

test("the attack: line ends cut what is looked for, and most of the secret is left", () => {
  const text = wrap(file(""), 76, "\n");
  const found = new Matcher(new Map([...formsOf(SECRET)].map((form) => [form, REF]))).find(text);
  const isLeft = [...text].map((_, at) => found.every(({ start, end }) => at < start || at >= end));
  expect(isLeft.filter(Boolean).length).toBeGreaterThan(60);
});

test.each(LINE_ENDS)("base64 and hex in lines with $how are replaced", ({ lineEnd }) => {
  const redactor = redactorOf(SECRET);
  for (const width of [1, 4, 7, 40, 64, 76]) {
    for (const before of ["", "k", "ke", "key"]) {
      const { text } = redactor.text(wrap(file(before), width, lineEnd));
      // What is left is of its neighbours, and at most two characters that hold bits of both.
      expect(text.replaceAll(MARK, "").replaceAll(lineEnd, "").length, `${width} ${before}`).toBeLessThan(13);
    }
    const hex = Buffer.from(SECRET).toString("hex");
    for (const form of [hex, hex.toUpperCase(), Buffer.from(SECRET).toString("base64url").slice(0, -1)])
      expect(
        redactor
          .text(`<${wrap(form, width, lineEnd)}>`)
          .text.replaceAll(MARK, "")
          .replaceAll(lineEnd, ""),
      ).toBe("<>");
  }
});

test("what a tool wraps and another one escapes is replaced", () => {
  const secret = "ûï~?¿>".repeat(9);
  const redactor = redactorOf(secret);
  const base64 = Buffer.from(secret).toString("base64");
  expect(base64).toMatch(/[+/]/);
  for (const text of [
    base64.replaceAll("/", "\\/"),
    encodeURIComponent(base64),
    base64.replaceAll("+", "\\u002B"),
    JSON.stringify(wrap(base64, 20, "\n")).replaceAll("/", "\\/"),
    encodeURIComponent(wrap(base64, 76, "\r\n")),
  ])
    expect(redactor.text(text).text.replaceAll(MARK, "").length, text).toBeLessThan(8);
});

test("a key in lines of base64 of its own, in lines of base64, is replaced whole", () => {
  const lines = Array.from({ length: 20 }, () => randomBytes(48).toString("base64"));
  const pem = ["-----BEGIN PRIVATE KEY-----", ...lines, "-----END PRIVATE KEY-----", ""].join("\n");
  const redactor = redactorOf(pem);
  for (const text of [
    pem,
    wrap(lines.join(""), 76, "\n"),
    wrap(Buffer.from(pem).toString("base64"), 76, "\n"),
    `key: |\n${pem.replace(/^/gm, "  ")}`,
  ]) {
    const { text: left } = redactor.text(text);
    expect(
      left
        .replace(/-----.*?-----/g, "")
        .replaceAll(MARK, "")
        .replace(/\s/g, "").length,
    ).toBeLessThan(8);
  }
});

test("of a wrapped text that was cut, an end that may be the beginning is dropped", () => {
  const redactor = redactorOf(SECRET);
  for (const { lineEnd } of LINE_ENDS) {
    const whole = wrap(file(""), 20, lineEnd);
    for (let kept = 8; kept < whole.length; kept += 1) {
      const { text } = redactor.text(`> ${whole.slice(0, kept)}`, { isCut: true });
      const left = text.slice(2).replaceAll(MARK, "").replaceAll(lineEnd, "");
      expect(left.length, `${JSON.stringify(lineEnd)} ${kept}`).toBeLessThan(8);
    }
  }
});

test("line ends are kept where there is no secret, and what is shown stays the same", () => {
  const redactor = redactorOf(SECRET, "aaaaaaaa", "00000000");
  const text = "one\n  two\\nthree%0Afour\r\n\r\nfive\n";
  expect(redactor.text(text)).toEqual({ text, isRedacted: false });
  const shown = redactor.text(`head\n${wrap(file("x"), 33, "\n")}tail\naaaa\n${MARK}\naaaa`).text;
  expect(shown).toMatch(/^head\n/);
  expect(redactor.text(shown)).toEqual({ text: shown, isRedacted: false });
});

test("random secrets in random widths leave nothing, seed 1", () => {
  const random = new Random(1);
  const pick = [...LINE_ENDS];
  for (let round = 0; round < 400; round += 1) {
    const secret = randomBytesOf(random, 8 + random.below(200)).toString("latin1");
    if (secret.trim().length < CREDENTIAL_LIMITS.formCharactersMin) continue;
    const redactor = redactorOf(secret);
    const { lineEnd } = random.pick(pick);
    const width = 1 + random.below(100);
    const bytes = Buffer.from(secret);
    const form = random.pick(["base64", "base64url", "hex"] as const);
    const before = random.below(3);
    const given = Buffer.concat([Buffer.alloc(before, 120), bytes, Buffer.alloc(random.below(4), 121)]);
    const text = wrap(given.toString(form), width, lineEnd);
    const left = redactor.text(`(${text})`).text.replaceAll(MARK, "").replaceAll(lineEnd, "");
    // Two bytes before and three behind, the characters that hold bits of both, and padding.
    expect(left.length, `${round}: ${form} in ${width} by ${JSON.stringify(lineEnd)}`).toBeLessThan(16);
  }
});

function randomBytesOf(random: Random, length: number): Buffer {
  return Buffer.from(Array.from({ length }, () => random.below(256)));
}

test("64 secrets in 64 KiB of lines cost no more than some passes over it", () => {
  const secrets = Array.from({ length: CREDENTIAL_LIMITS.countMax }, () =>
    randomBytes(30).toString("base64"),
  );
  const redactor = redactorOf(...secrets);
  redactor.text("warm\nup");
  const texts = [
    wrap(randomBytes(48 * 1024).toString("base64"), 76, "\n"),
    JSON.stringify(wrap(randomBytes(48 * 1024).toString("base64"), 76, "\r\n")),
    "2026-01-01T00:00:00Z GET /v1/models 200 the quick brown fox\n".repeat(1_100).slice(0, 65_536),
    "\n".repeat(65_536),
    "a\n".repeat(32_768),
    "\\".repeat(65_536),
    "\\n".repeat(32_768),
    `${"\\".repeat(1_000)}n`.repeat(65),
    `\n${" ".repeat(1_000)}`.repeat(65),
  ];
  for (const text of texts) {
    const cost = costInPasses(() => redactor.text(text));
    if (process.env.CAPSEM_SHOW === "1")
      console.log(`${cost.toFixed(1)} passes over ${text.length} characters`);
    expect(cost).toBeLessThan(250);
  }
});
