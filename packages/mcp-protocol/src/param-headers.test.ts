import { expect, test } from "vitest";
import { decodeHeader, headersOfCall, headersProblem, headerValue, paramHeaders } from "./param-headers.ts";

const tool = (inputSchema: unknown) => JSON.stringify({ name: "t", inputSchema });
const text = (name: unknown, type = "string") => ({ type, "x-mcp-header": name });

test("headers are declared by properties of plain types alone; another place makes a tool useless", () => {
  const table: [unknown, string[] | null][] = [
    [{ type: "object" }, []],
    [
      {
        properties: { a: text("Region"), b: { type: "object", properties: { c: text("Zone", "integer") } } },
      },
      ["Region", "Zone"],
    ],
    [{ properties: { a: { type: "string", default: "x-mcp-header" } } }, []],
    [{ properties: { "x-mcp-header": { type: "string" } } }, []],
    [{ properties: { a: text("Region"), b: text("region") } }, null],
    [{ properties: { a: text("Re gion") } }, null],
    [{ properties: { a: text("") } }, null],
    [{ properties: { a: text(7) } }, null],
    [{ properties: { a: text("N", "number") } }, null],
    [{ properties: { a: text("N", "object") } }, null],
    [{ properties: { a: { "x-mcp-header": "N" } } }, null],
    [{ properties: { a: { type: "array", items: text("N") } } }, null],
    [{ anyOf: [{ properties: { a: text("N") } }] }, null],
    [{ $defs: { d: text("N") } }, null],
    [text("N", "object"), null],
    [{ patternProperties: { properties: text("N") } }, null],
  ];
  for (const [schema, names] of table) {
    const found = paramHeaders(tool(schema));
    expect([schema, found === null ? null : found.map(({ name }) => name)]).toEqual([schema, names]);
  }
});

test("a call repeats its arguments as far as they are there and plain", () => {
  const declared =
    paramHeaders(
      tool({
        properties: {
          a: text("A"),
          b: text("B", "integer"),
          c: text("C", "boolean"),
          d: { properties: { e: text("E") } },
        },
      }),
    ) ?? [];
  const headers = (args: unknown) => headersOfCall(declared, JSON.stringify(args));
  expect(headers({ a: "x", b: 7, c: false, d: { e: "y" } })).toEqual([
    ["mcp-param-a", "x"],
    ["mcp-param-b", "7"],
    ["mcp-param-c", "false"],
    ["mcp-param-e", "y"],
  ]);
  expect(headers({ a: null, b: 1.5, d: 3 })).toEqual([]);
  expect(headers({ b: 2 ** 53, d: { e: ["y"] } })).toEqual([]);
  expect(headersOfCall(declared, undefined)).toEqual([]);
});

test("no value breaks a header", () => {
  const table: [string, string][] = [
    ["plain words", "plain words"],
    ["", "=?base64??="],
    [" edge", "=?base64?IGVkZ2U=?="],
    ["é", "=?base64?w6k=?="],
    ["a\r\nx: y", "=?base64?YQ0KeDogeQ==?="],
    ["=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="],
  ];
  for (const [value, expected] of table) expect(headerValue(value)).toBe(expected);
});

test("a header says what it was made of, and one that is badly written says nothing", () => {
  for (const value of ["plain words", "", " edge", "é", "a\r\nx: y", "=?base64?YQ==?="]) {
    expect(decodeHeader(headerValue(value))).toBe(value);
  }
  const table: [string, string | undefined][] = [
    ["  a  ", "a"],
    ["SGVsbG8=", "SGVsbG8="],
    ["=?base64?SGVsbG8=", "=?base64?SGVsbG8="],
    ["=?base64?SGVsbG8?=", undefined],
    ["=?base64?SGVs!!!bG8=?=", undefined],
    ["=?base64?/w==?=", undefined],
    ["caf\u00e9", undefined],
    ["a\u0000b", undefined],
  ];
  for (const [header, said] of table) expect([header, decodeHeader(header)]).toEqual([header, said]);
});

test("headers of a call say what its arguments say, and nothing that they do not", () => {
  const properties = {
    a: text("A"),
    n: text("N", "integer"),
    f: text("F", "boolean"),
    d: { properties: { e: text("E") } },
  };
  const declared = paramHeaders(tool({ properties })) ?? [];
  const table: [unknown, Record<string, string>, string | null][] = [
    [{}, {}, null],
    [{ a: "x", n: 7, f: false, d: { e: "y" } }, { a: "x", n: "7", f: "false", e: "y" }, null],
    [{ a: "é" }, { a: "=?base64?w6k=?=" }, null],
    [{ a: "x" }, { a: "=?base64?eA==?=" }, null],
    [{ n: 7 }, { n: "7.0" }, null],
    [{ a: null }, {}, null],
    [{}, { other: "x" }, null],
    [{ a: "x" }, {}, "Mcp-Param-A is missing"],
    [{ a: "x" }, { a: "y" }, "Mcp-Param-A says other"],
    [{ a: "x" }, { a: "x, x" }, "Mcp-Param-A says other"],
    [{ a: "x" }, { a: "=?base64?e?=" }, "Mcp-Param-A is badly encoded"],
    [{ n: 7 }, { n: "8" }, "Mcp-Param-N says other"],
    [{ n: 7 }, { n: "0x7" }, "Mcp-Param-N says other"],
    [{ a: "7" }, { a: "7.0" }, "Mcp-Param-A says other"],
    [{ f: true }, { f: "True" }, "Mcp-Param-F says other"],
    [{}, { a: "x" }, "Mcp-Param-A is there"],
    [{ a: null }, { a: "null" }, "Mcp-Param-A is there"],
    [{ d: { e: "y" } }, { e: "z" }, "Mcp-Param-E says other"],
  ];
  for (const [args, sent, problem] of table) {
    const headers = new Map(Object.entries(sent).map(([name, value]) => [`mcp-param-${name}`, value]));
    const found = headersProblem(declared, args, headers);
    if (problem === null) expect([args, sent, found]).toEqual([args, sent, null]);
    else expect(found, JSON.stringify([args, sent])).toContain(problem);
  }
});
