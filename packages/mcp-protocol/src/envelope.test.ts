import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { costInPasses } from "../../../tests/support/cost.ts";
import {
  envelopeErrorCode,
  errorText,
  idKeyOf,
  kindOf,
  notificationText,
  readEnvelope,
  requestText,
  resultText,
} from "./envelope.ts";

function failureOf(text: string): Failure {
  try {
    readEnvelope(text);
  } catch (thrown) {
    if (thrown instanceof Failure) return thrown;
    throw thrown;
  }
  throw new Error(`it was taken: ${text.slice(0, 80)}`);
}

test("parameters and results are the text that was sent", () => {
  const params = '{ "b" : 1.0e+2, "a":"\\u0041\\/", "b2": 12345678901234567890123, "":[ ] }';
  expect(readEnvelope(`{"params":${params},"jsonrpc":"2.0","method":"tools/call","id":7}`)).toEqual({
    kind: "request",
    id: 7,
    idText: "7",
    method: "tools/call",
    paramsText: params,
  });
  expect(readEnvelope(` {"jsonrpc" : "2.0" , "id" : "a" , "result" : ${params} }\n`)).toEqual({
    kind: "result",
    idText: '"a"',
    resultText: params,
    resultFrom: 46,
  });
  expect(readEnvelope(`{"jsonrpc":"2.0","method":"notifications/progress","params":${params}}`)).toEqual({
    kind: "notification",
    method: "notifications/progress",
    paramsText: params,
  });
  const error = '{"code":-32601, "message":"no", "data":{"x":1e400}}';
  expect(readEnvelope(`{"error":${error},"id":0,"jsonrpc":"2.0"}`)).toEqual({
    kind: "error",
    idText: "0",
    errorText: error,
    errorFrom: 9,
  });
});

test("ids of 0, of nothing, and beyond any number are kept as they were written", () => {
  for (const idText of ["0", '""', "-1", "12345678901234567890", '"\\u00e9"', '"1"', "1.50"]) {
    const read = readEnvelope(`{"jsonrpc":"2.0","id":${idText},"method":"ping"}`);
    expect(read).toMatchObject({ kind: "request", idText, method: "ping", paramsText: undefined });
  }
});

test("an error may have no id or one of null", () => {
  const error = '{"code":1,"message":""}';
  expect(readEnvelope(`{"jsonrpc":"2.0","error":${error}}`)).toMatchObject({ idText: null });
  expect(readEnvelope(`{"jsonrpc":"2.0","id":null,"error":${error}}`)).toMatchObject({ idText: null });
});

const PARSE: readonly string[] = [
  "",
  " ",
  "{",
  "}",
  "nonsense",
  '{"jsonrpc":"2.0","id":1,"method":"a"',
  '{"jsonrpc":"2.0","id":1,"method":"a"}}',
  '{"jsonrpc":"2.0","id":1,"method":"a",}',
  '{"jsonrpc":"2.0","id":01,"method":"a"}',
  '{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":NaN}}',
  '{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"\u0001"}}',
  '{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"\\x"}}',
  '{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"\\u12g4"}}',
  '{"jsonrpc":"2.0","id":1,"method":"a","params":{x:1}}',
  "{'jsonrpc':'2.0'}",
  '\ufeff{"jsonrpc":"2.0","id":1,"method":"a"}',
  `{"jsonrpc":"2.0","method":"a","params":${"[".repeat(100_000)}${"]".repeat(100_000)}}`,
  `{"jsonrpc":"2.0","method":"a","params":${'{"a":'.repeat(100_000)}`,
  '[{"jsonrpc":"2.0"',
  '"text"',
  "7",
];

test("what is no JSON is a parse error", () => {
  for (const text of PARSE) {
    const failure = failureOf(text);
    expect(failure.kind, text.slice(0, 80)).toBe("parse_error");
    expect(envelopeErrorCode(failure)).toBe(-32_700);
    expect(failure.message.length).toBeLessThan(200);
  }
});

const INVALID: readonly string[] = [
  "[]",
  '[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
  "{}",
  '{"id":1,"method":"a"}',
  '{"jsonrpc":"1.0","id":1,"method":"a"}',
  '{"jsonrpc":2.0,"id":1,"method":"a"}',
  '{"jsonrpc":"2.0","id":1}',
  '{"jsonrpc":"2.0","id":null,"method":"a"}',
  '{"jsonrpc":"2.0","id":{},"method":"a"}',
  '{"jsonrpc":"2.0","id":true,"method":"a"}',
  '{"jsonrpc":"2.0","id":1,"method":7}',
  '{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}',
  '{"jsonrpc":"2.0","id":1,"method":"a","params":null}',
  '{"jsonrpc":"2.0","id":1,"method":"a","result":{}}',
  '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}',
  '{"jsonrpc":"2.0","result":{}}',
  '{"jsonrpc":"2.0","id":null,"result":{}}',
  '{"jsonrpc":"2.0","id":1,"result":7}',
  '{"jsonrpc":"2.0","id":1,"error":"x"}',
  '{"jsonrpc":"2.0","id":[],"error":{"code":1,"message":""}}',
  '{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}',
  '{"jsonrpc":"2.0","id":1,"method":"a","m\\u0065thod":"b"}',
  '{"jsonrpc":"2.0","id":1,"params":{},"method":"a","params":{}}',
  '{"jsonrpc":"2.0","id":1,"method":"a","other":1,"other":1}',
  `{"jsonrpc":"2.0","id":"${"x".repeat(2_000)}","method":"a"}`,
];

test("JSON that is no single message is an invalid request", () => {
  for (const text of INVALID) {
    const failure = failureOf(text);
    expect(failure.kind, text.slice(0, 80)).toBe("invalid_request");
    expect(envelopeErrorCode(failure)).toBe(-32_600);
  }
});

test("an invalid request says its id where it could be read", () => {
  expect(failureOf('{"id":"x","method":"a"}').facts).toEqual({ id_text: '"x"' });
  expect(failureOf('{"jsonrpc":"2.0","id":{},"method":"a"}').facts).toBeUndefined();
});

test("what is written is read back", () => {
  const params = '{"a":[1,2]}';
  expect(readEnvelope(requestText("5", 'a"b', params))).toMatchObject({
    id: 5,
    method: 'a"b',
    paramsText: params,
  });
  expect(readEnvelope(requestText('"q"', "ping"))).toMatchObject({ id: "q", paramsText: undefined });
  expect(readEnvelope(notificationText("n", params))).toMatchObject({
    kind: "notification",
    paramsText: params,
  });
  expect(readEnvelope(notificationText("n"))).toMatchObject({ kind: "notification", method: "n" });
  expect(readEnvelope(resultText('""', params))).toMatchObject({ idText: '""', resultText: params });
  const error = readEnvelope(errorText(null, -32_600, "no", { rule_id: "r" }));
  expect(error).toMatchObject({ kind: "error", idText: null });
  expect(JSON.parse(errorText("3", 1, "m"))).toEqual({
    jsonrpc: "2.0",
    id: 3,
    error: { code: 1, message: "m" },
  });
});

test("the kind of a message needs no look at what it carries", () => {
  expect(kindOf('{"jsonrpc":"2.0","id":1,"result":{')).toBe("result");
  expect(kindOf('{"error":')).toBe("error");
  expect(kindOf(requestText("1", "a", "{}"))).toBe("request");
  expect(kindOf('{"method":"a","params":{"x":[1]},"jsonrpc":"2.0","id":1}')).toBe("request");
  expect(kindOf(notificationText("a", '{"id":1,"result":2}'))).toBe("notification");
  expect(() => kindOf("[]")).toThrow("batches");
  expect(() => kindOf("{}")).toThrow("no method");
});

test("an id has one key however it is written", () => {
  expect(idKeyOf('"\\u0061"')).toBe('"a"');
  expect(idKeyOf('"a"')).toBe('"a"');
  expect(idKeyOf("1.0")).toBe("1");
  expect(idKeyOf("1e2")).toBe("100");
  expect(idKeyOf("-0")).toBe("0");
  expect(idKeyOf("12345678901234567891")).not.toBe(idKeyOf("12345678901234567890"));
  expect(idKeyOf('"1"')).not.toBe(idKeyOf("1"));
});

test("a message of 16 MiB costs little more than its length", () => {
  const data = "x".repeat(16_000_000);
  const text = resultText("1", JSON.stringify({ content: [{ type: "text", text: data }] }));
  expect(readEnvelope(text)).toMatchObject({ kind: "result", idText: "1" });
  expect(costInPasses(() => readEnvelope(text), 3)).toBeLessThan(500);
});
