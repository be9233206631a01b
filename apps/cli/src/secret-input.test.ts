import { expect, test } from "vitest";
import { readSecret } from "./secret-input.ts";
import { fakePowers } from "./testing/fake-powers.ts";

const TYPED: [string, string][] = [
  ["a-long-secret\r", "a-long-secret"],
  ["wrong\x15a-long-secret\n", "a-long-secret"],
  ["a-long-secrez\x7ft\r", "a-long-secret"],
  ["grüße-und-mehr\x04", "grüße-und-mehr"],
  ["a-long-secret\rmore", "a-long-secret"],
];

test.each(TYPED)("what is typed is not shown, and the terminal is given back: %j", async (keys, secret) => {
  const fake = fakePowers();
  fake.type(keys);
  expect(await readSecret(fake)).toBe(secret);
  expect(fake.text()).toBe("capsem: the secret (it is not shown): \n");
  expect(fake.rawModes).toEqual([true, false]);
});

test.each(["\x03", "\x04", "short\r"])("what is no secret is none: %j", async (keys) => {
  const fake = fakePowers();
  fake.type(keys);
  await expect(readSecret(fake)).rejects.toThrow(
    /^Cannot register the credential: (nothing|its secret has fewer)/,
  );
  expect(fake.rawModes).toEqual([true, false]);
});

test("a pipe's last line end is none of it, all others are", async () => {
  for (const [input, secret] of [
    ["a-long-secret\n", "a-long-secret"],
    ["two\nlines of it\r\n", "two\nlines of it"],
    ["a-long-secret\n\n", "a-long-secret\n"],
  ] as const) {
    const fake = fakePowers({ isTerminal: false });
    fake.type(input);
    fake.endInput();
    expect(await readSecret(fake)).toBe(secret);
  }
  const long = fakePowers({ isTerminal: false });
  long.type("x".repeat(16_385));
  long.endInput();
  await expect(readSecret(long)).rejects.toThrow(/over 16384 bytes/);
});
