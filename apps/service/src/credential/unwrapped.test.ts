import { expect, test } from "vitest";
import { unwrapped } from "./unwrapped.ts";

test.each([
  { how: "a newline", given: "ab\ncd", left: "abcd" },
  { how: "one of another system", given: "ab\r\ncd", left: "abcd" },
  { how: "one in JSON", given: String.raw`ab\ncd`, left: "abcd" },
  { how: "both in JSON", given: String.raw`ab\r\ncd`, left: "abcd" },
  { how: "one in JSON in JSON in JSON", given: String.raw`ab\\\\r\\\\ncd`, left: "abcd" },
  { how: "one in a URL", given: "ab%0Acd%0d%0aef", left: "abcdef" },
  { how: "the backslash of a shell", given: "ab\\\ncd", left: "abcd" },
  { how: "what the next line begins with", given: "ab\n \t  cd\n\n\n  ef", left: "abcdef" },
  { how: "one at each end", given: "\nab\n", left: "ab" },
  { how: "nothing but them", given: "\n \\n%0a", left: "" },
])("$how is a line end, and goes", ({ given, left }) => {
  const view = unwrapped(given);
  expect(view?.text).toBe(left);
  for (const [at, character] of [...left].entries())
    expect(given[view?.origin(at) ?? -1], `${at}`).toBe(character);
});

test.each(["", "ab", "a b", "a\\b", "a%0bc", "a%20", "a%0", "a\\"])(
  "%j has none and is not looked at again",
  (text) => {
    expect(unwrapped(text)).toBeNull();
  },
);

test("what is found in it is known to be wrapped or not", () => {
  const view = unwrapped("ab\ncd\n\nef");
  expect(view?.isWrapped(0, 2)).toBe(false);
  expect(view?.isWrapped(0, 3)).toBe(true);
  expect(view?.isWrapped(2, 4)).toBe(false);
  expect(view?.isWrapped(3, 5)).toBe(true);
});

test.each(["ab\\", "ab\\\\", "ab%", "ab%0"])(
  "of a text that was cut, half a line end goes too: %j",
  (text) => {
    expect(unwrapped(text, true)?.text).toBe("ab");
    expect(unwrapped("ab", true)).toBeNull();
  },
);
