import { judgeUrl } from "@capsem/net";
import { expect, test } from "vitest";
import { formsOf } from "../credential/forms.ts";
import { lentHeaders } from "./lend.ts";

const REF = `credential:blake3:${"ab".repeat(32)}`;
const lender = (secret: string | null) => ({ lend: () => secret });

function lent(value: string, secret: string | null = "a-secret$&$1") {
  const judged = judgeUrl("https://example.com/");
  if (judged.kind !== "ok") throw new Error(judged.reason);
  return lentHeaders(new Map([["X-Key", value]]), judged.target, ["93.184.215.14"], lender(secret));
}

test("a secret stands where its reference stood, whatever it looks like", () => {
  expect(lent(`Token ${REF}, v=1`)).toMatchObject({
    ...{
      kind: "ok",
      headers: [["X-Key", "Token a-secret$&$1, v=1"]],
      secrets: [...formsOf("a-secret$&$1")],
      refs: [REF],
    },
  });
  expect(lent("no reference at all")).toMatchObject({
    headers: [["X-Key", "no reference at all"]],
    secrets: [],
  });
});

test("a secret that would be another header, two of them, and none are refused without a word of it", () => {
  for (const [value, secret] of [
    [REF, "line\r\nhost: evil.example"],
    [`${REF} ${REF}`, "a-secret"],
    [REF, null],
  ] as const) {
    const refused = lent(value, secret);
    expect(refused.kind).toBe("refused");
    expect(JSON.stringify(refused)).not.toMatch(/evil|a-secret/);
  }
});

test("of a header of Basic what it has in Base64 is looked for too", () => {
  const [name, password] = ["deploy", 'p4ss"word-0123'];
  const secret = Buffer.from(`${name}:${password}`).toString("base64");
  const { secrets } = lent(`Basic ${REF}`, secret) as { secrets: string[] };
  const looksFor = (text: string) => secrets.some((form) => text.includes(form));
  for (const text of [secret, password, JSON.stringify(password), encodeURIComponent(password)]) {
    expect([text, looksFor(text)]).toEqual([text, true]);
  }
  expect(looksFor(`hello ${name}`)).toBe(false);
  const bearer = lent(`Bearer ${REF}`, secret) as { secrets: string[] };
  expect(bearer.secrets.some((form) => password.includes(form))).toBe(false);
});
