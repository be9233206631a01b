import { expect, test } from "vitest";
import { SecretFilter } from "./secret-filter.ts";
import { SecretMatcher } from "./secret-matcher.ts";

const SECRETS = ["aaaaaaaab", "sk-canary-0123", "aaaabaaaab"];

function filterOf(secrets: readonly string[]): SecretFilter {
  const matcher = SecretMatcher.of(secrets);
  if (matcher === null) throw new Error("no matcher");
  return new SecretFilter(matcher);
}

function through(text: string, cuts: readonly number[], secrets: readonly string[] = SECRETS): string {
  const filter = filterOf(secrets);
  const bounds = [0, ...cuts, text.length];
  const parts = bounds
    .slice(1)
    .map((end, at) => filter.push(Buffer.from(text.slice(bounds[at], end), "latin1")));
  return Buffer.concat([...parts, filter.end()]).toString("latin1");
}

test("a secret is blanked wherever it is cut, and as long as it was", () => {
  for (const secret of SECRETS) {
    const text = `before ${secret}${secret} after ${secret}`;
    const blank = "*".repeat(secret.length);
    for (let cut = 0; cut <= text.length; cut += 1) {
      for (const second of [cut, Math.min(cut + 1, text.length), Math.min(cut + 5, text.length)]) {
        expect(through(text, [cut, second])).toBe(`before ${blank}${blank} after ${blank}`);
      }
    }
  }
});

test("what is no secret comes through byte for byte, and nothing is held but a beginning", () => {
  const filter = filterOf(["sk-canary-0123"]);
  const said = (text: string) => filter.push(Buffer.from(text, "latin1")).toString("latin1");
  expect(said("data: {}\n\n")).toBe("data: {}\n\n");
  expect(said("ends in sk-can")).toBe("ends in ");
  expect(said("dle")).toBe("sk-candle");
  expect(said("sk-canary-012")).toBe("");
  expect(filter.end().toString()).toBe("sk-canary-012");
});

test("random texts, cut at random, have no secret left and keep their length", () => {
  let state = 7;
  const random = (below: number) => {
    state = (state * 1_103_515_245 + 12_345) & 0x7fffffff;
    return state % below;
  };
  for (let round = 0; round < 2_000; round += 1) {
    let text = "";
    while (text.length < 60) text += random(4) === 0 ? (SECRETS[random(3)] ?? "") : "aab-sk"[random(6)];
    const cuts = [random(60), random(60), random(60)].sort((a, b) => a - b);
    const shown = through(text, cuts);
    expect(shown).toHaveLength(text.length);
    for (const secret of SECRETS) expect([text, cuts, shown.includes(secret)]).toEqual([text, cuts, false]);
  }
});

test("of pieces that overlap nothing is left, wherever they are cut, also where the last one is not whole", () => {
  const whole = "the-quick-brown-fox-jumps-over-0123456789";
  const pieces = [whole.slice(0, 20), whole.slice(12, 32), whole.slice(24)];
  for (const said of [whole, whole.slice(0, 20), whole.slice(0, 26), `${whole.slice(0, 32)}-and`]) {
    const text = `a ${said} b`;
    const once = through(text, [], pieces);
    expect(once).toHaveLength(text.length);
    expect(once).not.toContain("quick");
    for (let cut = 0; cut <= text.length; cut += 1) {
      for (const second of [cut, Math.min(cut + 1, text.length), Math.min(cut + 9, text.length)]) {
        expect([cut, second, through(text, [cut, second], pieces)]).toEqual([cut, second, once]);
      }
    }
  }
});

test("a secret beyond ASCII is blanked in both ways to write it", () => {
  const secret = "pässwörd-0123";
  for (const encoding of ["latin1", "utf8"] as const) {
    const bytes = Buffer.from(`<${secret}>`, encoding);
    const shown = filterOf([secret]).push(Buffer.from(bytes)).toString("latin1");
    expect(shown).toBe(`<${"*".repeat(bytes.length - 2)}>`);
  }
});

test("texts too short to be secrets are not looked for", () => {
  expect(SecretMatcher.of([])).toBeNull();
  expect(SecretMatcher.of(["short"])).toBeNull();
});
