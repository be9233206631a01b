import { expect, test } from "vitest";
import { shortened } from "./shortened.ts";

const cut = (text: string, charsKept: number) => {
  const short = shortened(Buffer.from(text), charsKept);
  return short === null ? null : Buffer.from(short.bytes).toString();
};

test.each<[what: string, text: string, charsKept: number, expected: string | null]>([
  ["a long text", '{"a":"0123456789","b":1}', 4, '{"a":"0123","b":1}'],
  ["one among others", '["abcd","abcde","abc"]', 4, '["abcd","abcd","abc"]'],
  ["nothing of a short one", '{"a":"0123","b":["01"]}', 4, null],
  ["no name, whatever its length", '{"0123456789" : 1, "b":"012345"}', 4, '{"0123456789" : 1, "b":"0123"}'],
  ["no character in its middle", '["éé🙂é🙂"]', 3, '["éé🙂"]'],
  ["no escape in its middle", '["ab\\u00e9\\u00e9\\u00e9"]', 3, '["ab\\u00e9"]'],
  ["no quote that is escaped", '["ab\\\\\\"cdef"]', 4, '["ab\\\\\\""]'],
])("it cuts %s", (_, text, charsKept, expected) => {
  expect(cut(text, charsKept)).toBe(expected);
});

test.each([
  ["a control character", '["0123456\n"]'],
  ["an escape that is none", '["0123456\\x"]'],
  ["a hexadecimal digit that is none", '["0123456\\u00g0"]'],
  ["an escape at the end", '["0123456\\'],
  ["no end", '["0123456'],
])("behind the cut %s is seen, and nothing is cut", (_, text) => {
  expect(cut(text, 4)).toBeNull();
});

test("a place in what is left is one in the whole", () => {
  const whole = Buffer.from('{"a":"0123456789","b":["0123456789"],"c":1}');
  const short = shortened(whole, 2);
  const left = Buffer.from(short?.bytes ?? []).toString();
  expect(left).toBe('{"a":"01","b":["01"],"c":1}');
  const place = (text: string) => short?.placeOf(left.indexOf(text));
  expect([place('"01"'), place(',"b"'), place("["), place(',"c"')]).toEqual([5, 17, 22, 36]);
  expect(short?.placeOf(left.length)).toBe(whole.length);
});
