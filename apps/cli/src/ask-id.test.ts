import type { AskInfo } from "@capsem/api";
import type { Client } from "@capsem/sdk";
import { expect, test } from "vitest";
import { findAsk } from "./ask-id.ts";

const ask = (id: string, state: AskInfo["state"]) =>
  ({ id: `ask_${id}`, state, title: `what ${id}` }) as AskInfo;
const ASKS = [
  ask("abcdefgggggggggg", "pending"),
  ask("abcdezzzzzzzzzzz", "denied"),
  ask("bbbb22cccccccccc", "pending"),
  ask("bbbb33cccccccccc", "pending"),
  ask("dddd2222222222zz", "expired"),
];
const client = { asks: { list: async () => ASKS } } as unknown as Client;

const FOUND: [string, string][] = [
  ["abcdef", "ask_abcdefgggggggggg"],
  ["ask_abcdef", "ask_abcdefgggggggggg"],
  // One that waits comes before one that was answered.
  ["abcd", "ask_abcdefgggggggggg"],
  ["abcdez", "ask_abcdezzzzzzzzzzz"],
  ["bbbb2", "ask_bbbb22cccccccccc"],
  ["dddd", "ask_dddd2222222222zz"],
  // All of it, as it is written behind its prefix.
  ["bbbb22cccccccccc", "ask_bbbb22cccccccccc"],
];
test.each(FOUND)("%s is %s", async (word, id) => {
  expect((await findAsk(client, word)).id).toBe(id);
});

test("a whole id is taken as it is, without a list", async () => {
  const none = {} as Client;
  for (const word of ["ask_zzzzzzzzzzzzzzzz", "zzzzzzzzzzzzzzzz"])
    expect(await findAsk(none, word)).toEqual({ id: "ask_zzzzzzzzzzzzzzzz" });
});

test.each([
  ["bbbb", /from others:\n {2}ask_bbbb22cccccccccc {2}what bbbb22cccccccccc\n {2}ask_bbbb33c/],
  ["abc", /at least 4/],
  ["ABCDEF", /at least 4/],
  ["abcdefgggggggggga", /at least 4/],
  ["", /at least 4/],
  ["../abcd", /at least 4/],
  ["zzzz", /none begins so/],
])("%j is refused", async (word, text) => {
  await expect(findAsk(client, word)).rejects.toThrow(text);
});
