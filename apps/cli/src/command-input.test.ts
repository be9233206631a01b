import { defer } from "@capsem/base";
import { expect, test } from "vitest";
import { commandInput } from "./command-input.ts";
import { fakePowers } from "./testing/fake-powers.ts";

const piped = () => fakePowers({ isTerminal: false });
/** Longer than any test may take: what is decided sooner was not decided by it. */
const NEVER_MS = 600_000;

async function textOf(input: AsyncIterable<Uint8Array> | null): Promise<string | null> {
  if (input === null) return null;
  let text = "";
  for await (const bytes of input) text += Buffer.from(bytes).toString();
  return text;
}

test("an input that is at its end at once is none, and neither is a terminal or one that cannot be read", async () => {
  const ended = piped();
  ended.endInput();
  expect(await commandInput(ended.powers.stdin, NEVER_MS)).toBeNull();
  expect(await commandInput(fakePowers().powers.stdin, NEVER_MS)).toBeNull();
  async function* folder(): AsyncGenerator<Uint8Array> {
    yield await Promise.reject(new Error("EISDIR"));
  }
  const stdin = { ...ended.powers.stdin, bytes: folder };
  expect(await commandInput(stdin, NEVER_MS)).toBeNull();
});

test("what was looked at is given on, whole and in its order", async () => {
  const fake = piped();
  fake.type("one ");
  const input = await commandInput(fake.powers.stdin, NEVER_MS);
  fake.type("two");
  fake.endInput();
  expect(await textOf(input)).toBe("one two");
});

test("an input that is silent at first may still say something", async () => {
  const fake = piped();
  const input = await commandInput(fake.powers.stdin, 1);
  expect(input).not.toBeNull();
  fake.type("late");
  fake.endInput();
  expect(await textOf(input)).toBe("late");
});

test("what fails later fails whoever reads it", async () => {
  const later = defer<void>();
  async function* broken(): AsyncGenerator<Uint8Array> {
    await later.promise;
    yield await Promise.reject(new Error("EIO"));
  }
  const input = await commandInput({ ...piped().powers.stdin, bytes: broken }, 1);
  later.resolve();
  await expect(textOf(input)).rejects.toThrow("EIO");
});
