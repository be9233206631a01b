import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { costInPasses } from "../../../../tests/support/cost.ts";
import { CREDENTIAL_LIMITS } from "./limits.ts";
import { SecretRedactor } from "./redactor.ts";

const REF = `credential:blake3:${"ab".repeat(32)}`;
const OTHER = `credential:blake3:${"cd".repeat(32)}`;
const MARK = `[${REF}]`;
const SECRET = 'sk-"Ünï/cö+de" <key>?';

function redactorOf(...secrets: string[]): SecretRedactor {
  const redactor = new SecretRedactor();
  for (const [at, secret] of secrets.entries()) redactor.add(refOf(at), secret);
  return redactor;
}

function refOf(at: number): string {
  return `credential:blake3:${at === 0 ? "ab".repeat(32) : at.toString(16).padStart(64, "0")}`;
}

const utf8 = (text: string) => Buffer.from(text);
const url = new URLSearchParams([["key", SECRET]]).toString();

test.each([
  { how: "as it is", text: `key=${SECRET};`, left: `key=${MARK};` },
  { how: "in JSON", text: JSON.stringify({ key: SECRET }), left: `{"key":"${MARK}"}` },
  { how: "in JSON of ASCII", text: String.raw`"sk-\"\u00dcn\u00ef/c\u00f6+de\" <key>?"`, left: `"${MARK}"` },
  {
    how: "in JSON of ASCII, upper case",
    text: String.raw`sk-\"\u00DCn\u00EF/c\u00F6+de\" <key>?`,
    left: MARK,
  },
  { how: "in JSON for a page", text: String.raw`sk-\"Ünï/cö+de\" \u003ckey\u003e?`, left: MARK },
  { how: "in JSON with escaped slashes", text: String.raw`sk-\"Ünï\/cö+de\" <key>?`, left: MARK },
  {
    how: "in JSON in JSON",
    text: JSON.stringify(JSON.stringify({ a: SECRET })),
    left: `"{\\"a\\":\\"${MARK}\\"}"`,
  },
  { how: "as a component", text: `?k=${encodeURIComponent(SECRET)}&z`, left: `?k=${MARK}&z` },
  {
    how: "as a component, lower case",
    text: encodeURIComponent(SECRET).replace(/%../g, (x) => x.toLowerCase()),
    left: MARK,
  },
  { how: "as a form", text: url, left: `key=${MARK}` },
  { how: "as a whole URL", text: encodeURI(`https://h/${SECRET}`), left: `https://h/${MARK}` },
  { how: "in hex", text: `<${utf8(SECRET).toString("hex")}>`, left: `<${MARK}>` },
  { how: "in upper hex", text: utf8(SECRET).toString("hex").toUpperCase(), left: MARK },
])("a secret $how is replaced", ({ text, left }) => {
  expect(text).not.toBe(left);
  expect(redactorOf(SECRET).text(text)).toEqual({ text: left, isRedacted: true });
});

test.each(["base64", "base64url"] as const)(
  "a secret in %s is replaced wherever it lies in the bytes",
  (alphabet) => {
    const redactor = redactorOf(SECRET);
    for (const before of ["", "u", "us", "user:", "user: "]) {
      for (const after of ["", "!", "!!", "!!!"]) {
        const text = utf8(`${before}${SECRET}${after}`).toString(alphabet);
        const { text: left, isRedacted } = redactor.text(`Authorization: Basic ${text}`);
        expect(isRedacted).toBe(true);
        // At its ends a character may hold bits of both; no byte of the secret is left.
        expect(left.replace(MARK, "").length).toBeLessThanOrEqual(
          21 + 4 * Math.ceil((before.length + 2) / 3) + 8,
        );
        expect(Buffer.from(left.split(" ")[2]?.split("[")[0] ?? "", "base64").toString()).not.toContain(
          "sk-",
        );
      }
    }
  },
);

test("each line of a secret with lines is replaced by itself, and what says only what it is stays", () => {
  const lines = Array.from({ length: 4 }, () => randomBytes(48).toString("base64"));
  const pem = ["-----BEGIN PRIVATE KEY-----", ...lines, "short", "-----END PRIVATE KEY-----", ""].join("\n");
  const redactor = redactorOf(pem);
  for (const line of lines) expect(redactor.text(`x ${line}\r`).text).toBe(`x ${MARK}\r`);
  expect(redactor.text("-----BEGIN PRIVATE KEY-----").isRedacted).toBe(false);
  expect(redactor.text(pem).text).toBe(MARK);
  expect(redactor.text(JSON.stringify({ pem })).text).toBe(`{"pem":"${MARK}"}`);
});

test("half of a long secret is replaced too", () => {
  const secret = randomBytes(300).toString("base64");
  const redactor = redactorOf(secret);
  for (let kept = CREDENTIAL_LIMITS.pieceCharactersMax; kept < secret.length; kept += 1) {
    const { text } = redactor.text(`a${secret.slice(0, kept)}b`);
    expect(text.length, `${kept}`).toBeLessThan(2 + MARK.length + CREDENTIAL_LIMITS.pieceCharactersMax);
  }
  expect(redactor.text(`${secret}${secret}`).text).toBe(MARK);
});

test("secrets that overlap are gone both, and those side by side are both named", () => {
  const redactor = redactorOf("abcdefgh12345", "12345ijklmnop");
  expect(redactor.text("abcdefgh12345ijklmnop").text).toBe(`[${refOf(0)}][${refOf(1)}]`);
  expect(redactor.text("abcdefgh1234512345ijklmnop").text).toBe(`[${refOf(0)}][${refOf(1)}]`);
});

test("without a secret, and with one that is forgotten, every text passes", () => {
  const redactor = new SecretRedactor();
  const value = { key: [SECRET] };
  expect(redactor.json(value).value).toBe(value);
  redactor.add(REF, SECRET);
  expect(redactor.json(value)).toEqual({ value: { key: [MARK] }, isRedacted: true });
  redactor.remove(REF);
  expect(redactor.text(SECRET)).toEqual({ text: SECRET, isRedacted: false });
  redactor.add(OTHER, SECRET);
  expect(redactor.text(SECRET).text).toBe(`[${OTHER}]`);
});

test("of a text that was cut, an end that may be a secret's beginning is dropped", () => {
  const secret = "canary-0123456789-abcdefghij";
  const redactor = redactorOf(secret);
  for (let kept = 4; kept < secret.length; kept += 1) {
    const cut = `told: ${secret.slice(0, kept)}`;
    // The attack: without the word that it was cut, half of it stays.
    expect(redactor.text(cut).text).toBe(cut);
    expect(redactor.text(cut, { isCut: true })).toEqual({ text: "told: ", isRedacted: true });
  }
  expect(redactor.text("told: can", { isCut: true }).text).toBe("told: can");
  expect(redactor.text(`${secret} cana`, { isCut: true }).text).toBe(`${MARK} `);
  expect(redactor.text(`${"cana".repeat(40)}`, { isCut: true }).text).toBe("cana".repeat(39));
  const encoded = utf8(secret).toString("base64");
  expect(redactor.text(`x ${encoded.slice(0, 20)}`, { isCut: true }).text).toBe("x ");
});

test("a long secret that was cut anywhere leaves no four of its characters", () => {
  const secret = randomBytes(150).toString("hex");
  const redactor = redactorOf(secret);
  for (let kept = 4; kept < secret.length; kept += 7) {
    const { text } = redactor.text(`> ${secret.slice(0, kept)}`, { isCut: true });
    expect(text.replace(MARK, ""), `${kept}`).toMatch(/^> .{0,3}$/);
  }
});

test("markers of ours stay, and a secret that ends in the beginning of one is found beside them", () => {
  const redactor = redactorOf("plain secret", "odd one [", "]also odd", "00000000");
  // Digits that are a secret may be among those of a reference: nothing of the secret is in them.
  expect(refOf(1)).toContain("00000000");
  expect(redactor.text(`[${refOf(1)}]`)).toEqual({ text: `[${refOf(1)}]`, isRedacted: false });
  for (const text of [
    `plain secret`,
    `odd one plain secret`,
    `odd one [${refOf(0)}]`,
    `plain secretalso odd`,
    `x [${refOf(0)}]also odd`,
    `${refOf(1)} [${refOf(1)}][${refOf(3)}]`,
  ]) {
    const { text: once } = redactor.text(text);
    expect(redactor.text(once), text).toEqual({ text: once, isRedacted: false });
    for (const secret of ["plain secret", "odd one [", "]also odd"]) expect(once).not.toContain(secret);
  }
});

test("a JSON value stays one, keys included, and what nobody can look through is withheld", () => {
  const redactor = redactorOf(SECRET);
  const value = JSON.parse(
    `{"__proto__": {"a": 1}, "n": 12345678, "list": [null, true, ${JSON.stringify(SECRET)}]}`,
  );
  value[`x${SECRET}`] = 1;
  const { value: shown } = redactor.json(value);
  expect(JSON.parse(JSON.stringify(shown))).toEqual(
    JSON.parse(`{"__proto__": {"a": 1}, "n": 12345678, "list": [null, true, "${MARK}"], "x${MARK}": 1}`),
  );
  let deep: unknown = SECRET;
  for (let level = 0; level < 20_000; level += 1) deep = [deep];
  expect(JSON.stringify(redactor.json(deep).value)).toContain("[redacted]");
});

test("no text and no secret makes it slow: forms that begin alike are not compared one by one", () => {
  const fields = Array.from({ length: 1_000 }, (_, at) => [`field_${at}`, randomBytes(8).toString("hex")]);
  const redactor = redactorOf(JSON.stringify(Object.fromEntries(fields), null, 8));
  redactor.text("warm");
  for (const text of [" ".repeat(65_536), `        "field_9`.repeat(4_096)]) {
    const cost = costInPasses(() => redactor.text(text), 3);
    if (process.env.CAPSEM_SHOW === "1")
      console.log(`${cost.toFixed(1)} passes over ${text.length} characters`);
    // Thousands, where forms are compared one by one.
    expect(cost).toBeLessThan(1_000);
  }
});

test("64 secrets in a text of 64 KiB cost no more than some passes over it", () => {
  const secrets = Array.from({ length: CREDENTIAL_LIMITS.countMax }, () =>
    randomBytes(30).toString("base64"),
  );
  const redactor = redactorOf(...secrets);
  redactor.text("warm");
  const texts = [
    randomBytes(48 * 1024).toString("base64"),
    "2026-01-01T00:00:00Z GET /v1/models 200 the quick brown fox\n".repeat(1_100).slice(0, 65_536),
    secrets.map((secret) => `${secret}`.slice(0, 20).repeat(52)).join(""),
  ];
  for (const text of texts) {
    const cost = costInPasses(() => redactor.text(text));
    if (process.env.CAPSEM_SHOW === "1")
      console.log(`${cost.toFixed(1)} passes over ${text.length} characters`);
    expect(cost).toBeLessThan(40);
  }
});
