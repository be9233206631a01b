import { expect, test } from "vitest";
import {
  arrayText,
  itemsOf,
  memberOf,
  membersOf,
  withLastMember,
  withMember,
  withoutMember,
} from "./raw-members.ts";

const TOOL = ' { "name" : "a" ,\n "n\\u0061me2": 1.50, "inputSchema":{"z":1,"a":[ ]}, "_meta" : null } ';

test("members are what was written, in the order of the text", () => {
  expect([...membersOf(TOOL)]).toEqual([
    ["name", '"a"'],
    ["name2", "1.50"],
    ["inputSchema", '{"z":1,"a":[ ]}'],
    ["_meta", "null"],
  ]);
  expect(memberOf(TOOL, "inputSchema")).toBe('{"z":1,"a":[ ]}');
  expect(memberOf(TOOL, "gone")).toBeUndefined();
  expect(membersOf("{}").size).toBe(0);
});

test("items are what was written", () => {
  expect(itemsOf(' [ 1.0 , {"a" : [1, 2]},"x,]" ] ')).toEqual(["1.0", '{"a" : [1, 2]}', '"x,]"']);
  expect(itemsOf("[ ]")).toEqual([]);
  expect(arrayText(itemsOf("[1, 2 ,3]"))).toBe("[1,2,3]");
});

test("one member is replaced and all else stays byte for byte", () => {
  expect(withMember(TOOL, "name", '"s__a"')).toBe(TOOL.replace('"a" ,', '"s__a" ,'));
  expect(withMember('{"a":1}', "b", "2")).toBe('{"a":1,"b":2}');
  expect(withMember('{"a":1 \n}', "b", "2")).toBe('{"a":1,"b":2 \n}');
  expect(withMember(" { } ", "b", "2")).toBe(' {"b":2 } ');
  expect(withMember("{}", 'q"', "2")).toBe('{"q\\"":2}');
});

test("a member goes with its comma", () => {
  expect(withoutMember('{"a":1,"b":2,"c":3}', "a")).toBe('{"b":2,"c":3}');
  expect(withoutMember('{"a":1,"b":2,"c":3}', "b")).toBe('{"a":1,"c":3}');
  expect(withoutMember('{"a":1, "c" : 3 }', "c")).toBe('{"a":1 }');
  expect(withoutMember('{ "a":1 }', "a")).toBe("{  }");
  expect(withoutMember('{"a":1}', "z")).toBe('{"a":1}');
});

test("a member that stands twice is refused, whichever it would be", () => {
  for (const text of ['{"name":"a","name":"b"}', '{"name":"a","n\\u0061me":"b"}']) {
    expect(() => membersOf(text)).toThrow("twice");
    expect(() => withMember(text, "name", "1")).toThrow("twice");
    expect(() => memberOf(text, "other")).toThrow("twice");
  }
});

test("what is no object or array is refused", () => {
  for (const text of ["", "[]", "7", '{"a":1', '{"a":1}x', '{"a":}', "{,}"]) {
    expect(() => membersOf(text), text).toThrow("Cannot read JSON");
  }
  for (const text of ["", "{}", "7", "[1", "[1]x", "[,]", "[1,]"]) {
    expect(() => itemsOf(text), text).toThrow("Cannot read JSON");
  }
});

test("a last member is put behind the others of an object that is not looked through", () => {
  expect(withLastMember('{"name":"t","_meta":{"a":1}}', "arguments", "{}")).toBe(
    '{"name":"t","_meta":{"a":1},"arguments":{}}',
  );
  expect(withLastMember(" { } ", "a", "1")).toBe(' { "a":1} ');
});
