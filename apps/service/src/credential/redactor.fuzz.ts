/** A seeded fuzzer of redaction: whatever the secrets and however a text holds them, none is left. Throws what it found. */
import { assert } from "@capsem/base";
import { Random } from "../../../../packages/policy/src/testing/random.ts";
import { createLineRedactor } from "../log/line-redactor.ts";
import { markerOf, readsLikeMarker } from "./marker.ts";
import { SecretRedactor } from "./redactor.ts";

const ALPHABETS = [
  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-",
  "0123456789",
  "0123456789abcdef",
  // Much of what is looked for is in much of what is there.
  "ab",
  "a",
  "ab[]c:",
  `"\\/'<>& \t%+`,
  "äöü€💥é漢字\u2028\u0007",
  "key=: ,{}\n",
] as const;

/** How programs write a text; each names what must not be left. */
const WRITERS: readonly ((secret: string, around: string) => string)[] = [
  (secret, around) => around + secret + around,
  (secret) => JSON.stringify({ key: secret }),
  (secret) => JSON.stringify(JSON.stringify({ key: secret })),
  (secret) =>
    JSON.stringify(secret).replace(
      /[^ -~]/g,
      (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
    ),
  (secret) => encodeURIComponent(secret),
  (secret) => encodeURIComponent(secret).replace(/%../g, (word) => word.toLowerCase()),
  (secret) => new URLSearchParams({ key: secret }).toString(),
  (secret) => Buffer.from(secret).toString("hex"),
  (secret) => Buffer.from(secret).toString("hex").toUpperCase(),
  (secret, around) => Buffer.from(around + secret + around).toString("base64"),
  (secret, around) => Buffer.from(around + secret + around).toString("base64url"),
  (secret, around) => lines(Buffer.from(around + secret + around).toString("base64"), "\n"),
  (secret, around) => JSON.stringify(lines(Buffer.from(around + secret).toString("base64"), "\r\n")),
  (secret, around) => around + lines(Buffer.from(secret).toString("hex"), "\n  ") + around,
];

/** In lines of a length that depends on the text alone, so that a seed says everything. */
function lines(text: string, lineEnd: string): string {
  const width = 1 + ((text.length * 31) % 79);
  return Array.from({ length: Math.ceil(text.length / width) }, (_, at) =>
    text.slice(at * width, at * width + width),
  ).join(lineEnd);
}

export function fuzz(seed: number, rounds: number): void {
  for (let round = 0; round < rounds; round += 1) {
    const random = new Random(seed + round);
    const secrets = Array.from({ length: 1 + random.below(5) }, () => secretOf(random)).filter(
      (secret) => secret.trim().length >= 8 && !readsLikeMarker(secret) && !/\p{Surrogate}/u.test(secret),
    );
    const redactor = new SecretRedactor();
    const refs = secrets.map((_, at) => `credential:blake3:${at.toString(16).padStart(64, "f")}`);
    secrets.forEach((secret, at) => {
      redactor.add(refs[at] ?? "", secret);
    });
    const text = textWith(random, secrets, refs);
    check(redactor, text, secrets, `seed ${seed + round}`);
  }
}

function check(redactor: SecretRedactor, text: string, secrets: readonly string[], at: string): void {
  const once = redactor.text(text).text;
  assertGone(once, secrets, `${at}: text`);
  assert(
    redactor.text(once).text === once,
    `${at}: a second time is another text: ${JSON.stringify([text, once])}`,
  );
  const value = { [text]: text, list: [text, 1, null] };
  const shown = redactor.json(value).value;
  const again: unknown = JSON.parse(JSON.stringify(shown));
  assert(
    JSON.stringify(redactor.json(again).value) === JSON.stringify(shown),
    `${at}: a value changes again`,
  );
  for (const each of [Object.keys(shown).join("\0"), String(shown.list[0])])
    assertGone(each, secrets, `${at}: json`);
  const cut = redactor.text(text.slice(0, text.length - 3), { isCut: true }).text;
  assertGone(cut, secrets, `${at}: cut`);
  const line = createLineRedactor(redactor)(
    JSON.stringify({ level: "info", message: text, count: 12_345_678 }),
  );
  JSON.parse(line);
  assertGone(line, secrets, `${at}: line`);
}

/** Markers are taken out first, so that nothing is found that only they make. */
function assertGone(shown: string, secrets: readonly string[], at: string): void {
  const rest = shown.replace(/\[credential:blake3:f*[0-9a-f]{1,2}\]/g, "\u0001");
  const joined = rest.replace(/\\+[rn]|[\r\n][ \t]*/g, "");
  for (const secret of secrets) {
    const lines = secret.split("\n").map((line) => line.trim());
    for (const text of [secret, ...lines].filter((each) => each.trim().length >= 8)) {
      for (const write of WRITERS.slice(0, 9)) {
        const form = inner(write(text, ""));
        assert(!rest.includes(form), `${at}: ${JSON.stringify(form)} is left in ${JSON.stringify(shown)}`);
      }
      const hex = Buffer.from(text).toString("hex");
      assert(!joined.includes(hex), `${at}: hex ${hex} is left in lines of ${JSON.stringify(shown)}`);
      for (const around of ["", "x", "xy"]) {
        const form = Buffer.from(around + text)
          .toString("base64")
          .slice(4, -4);
        if (form.length < 8) continue;
        assert(!joined.includes(form), `${at}: base64 ${form} is left in lines of ${JSON.stringify(shown)}`);
        assert(!rest.includes(form), `${at}: base64 ${form} is left in ${JSON.stringify(shown)}`);
      }
    }
  }
}

/** What a writer wrote without what it put around it. */
function inner(written: string): string {
  if (written.startsWith('{"key":"')) return written.slice(8, -2);
  if (written.startsWith('"{\\"key')) return written.slice(12, -4);
  if (written.startsWith("key=")) return written.slice(4);
  return written.startsWith('"') && written.endsWith('"') && written.length > 1
    ? written.slice(1, -1)
    : written;
}

function secretOf(random: Random): string {
  const alphabet = [...random.pick(ALPHABETS)];
  const length = random.chance(4) ? 60 + random.below(140) : 8 + random.below(30);
  return Array.from({ length }, () => random.pick(alphabet)).join("");
}

function textWith(random: Random, secrets: readonly string[], refs: readonly string[]): string {
  const parts: string[] = [];
  for (let part = 0; part < 1 + random.below(12); part += 1) {
    const secret = secrets.length === 0 ? "nothing to find" : random.pick(secrets);
    const around = secretOf(random).slice(0, random.below(6));
    const written = random.pick(WRITERS)(secret, around.replace(/\p{Surrogate}/gu, ""));
    parts.push(
      random.pick([
        written,
        written,
        secretOf(random),
        markerOf(random.pick(refs.length > 0 ? refs : ["x"])),
        "[cred",
        "]",
      ]),
    );
  }
  return parts.join(random.pick(["", " ", "\n", ","]));
}
