import { expect, test } from "vitest";
import { legacyParams, modernParams } from "./params.ts";

const NOBODY = { sampling: false, elicitation: false, roots: false };
const envelope = { protocol: "2026-07-28", clientInfo: '{"name":"c"}', client: NOBODY, logLevel: null };
const OURS =
  '"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/clientCapabilities":{}';

test("to a server of the handshake params go as they were given, but for what is replaced", () => {
  const table: [string | undefined, string | undefined, string | null][] = [
    [undefined, undefined, null],
    ["{}", "{}", null],
    ['{ "name":"x", "arguments":{"n":1.0e2} }', '{ "name":"x", "arguments":{"n":1.0e2} }', null],
    ['{"arguments":{"_meta":{"progressToken":1}}}', '{"arguments":{"_meta":{"progressToken":1}}}', null],
    ['{"_meta":{"a":1.0}, "n":2}', '{"_meta":{"a":1.0}, "n":2}', null],
    ['{"_meta":{"progressToken":"t", "a":1.0}}', '{"_meta":{"progressToken":9,"a":1.0}}', '"t"'],
    ['{"_meta":{"progressToken":0}}', '{"_meta":{"progressToken":9}}', "0"],
    ['{"_meta":{"io.modelcontextprotocol/clientInfo":{},"b":2},"n":1}', '{"_meta":{"b":2},"n":1}', null],
    ['{"_meta":null}', '{"_meta":null}', null],
  ];
  for (const [given, text, tokenText] of table) expect(legacyParams(given, "9")).toEqual({ text, tokenText });
});

test("to a server of 2026-07-28 params say who asks, whatever the client claims", () => {
  const table: [string | undefined, string, string | null][] = [
    [undefined, `{"_meta":{${OURS}}}`, null],
    ["{}", `{"_meta":{${OURS}}}`, null],
    [" { } ", ` {"_meta":{${OURS}} } `, null],
    ['{"name":"x","n":1.0}', `{"_meta":{${OURS}},"name":"x","n":1.0}`, null],
    ['{"a":1,"_meta":{"progressToken":"t"}}', `{"a":1,"_meta":{"progressToken":9,${OURS}}}`, '"t"'],
    [`{"_meta":{${OURS.replace('"c"', '"liar"')}}}`, `{"_meta":{${OURS}}}`, null],
  ];
  for (const [given, text, tokenText] of table) {
    const prepared = modernParams(given, "9", envelope);
    expect(prepared).toEqual({ text, tokenText });
    JSON.parse(prepared.text);
  }
  const told = modernParams("{}", "9", {
    ...envelope,
    client: { ...NOBODY, roots: true },
    logLevel: '"info"',
  });
  expect(JSON.parse(told.text)._meta).toMatchObject({
    "io.modelcontextprotocol/clientCapabilities": { roots: {} },
    "io.modelcontextprotocol/logLevel": "info",
  });
});
