import type { IncomingMessage } from "node:http";
import { expect, test } from "vitest";
import { actContext } from "./act-context.ts";

const USER = { kind: "user", name: "uid 1000" } as const;
const TRACE = `00-${"ab".repeat(16)}-${"cd".repeat(8)}-01`;

function contextWith(headers: Record<string, string>) {
  const signal = new AbortController().signal;
  return actContext({ headers } as unknown as IncomingMessage, USER, signal, (bytes) =>
    Buffer.alloc(bytes, 9),
  );
}

test("a request says who asks, and its trace is passed on", () => {
  const context = contextWith({
    traceparent: TRACE,
    "x-capsem-client": "editor/1.2",
    "x-capsem-turn": "turn 7",
    "x-capsem-time-left-ms": "5000",
  });
  expect(context).toMatchObject({
    requester: USER,
    client: "editor/1.2",
    tokenId: null,
    trace: TRACE,
    traceId: "ab".repeat(16),
    asks: "hold" as const,
    turn: "turn 7",
    timeLeftMs: 5000,
  });
});

test.each([
  undefined,
  "",
  "not a trace",
  `${TRACE}x`,
  TRACE.toUpperCase(),
  `00-${"0".repeat(32)}-${"cd".repeat(8)}-01`,
  `00-${"ab".repeat(16)}-${"0".repeat(16)}-01`,
  `ff-${"ab".repeat(16)}-${"cd".repeat(8)}-01`,
  `${TRACE}-${"x".repeat(300)}`,
])("a trace of %j is none, and one is made", (traceparent) => {
  const { trace, traceId } = contextWith(traceparent === undefined ? {} : { traceparent });
  expect(trace).toBe(`00-${"09".repeat(16)}-${"09".repeat(8)}-01`);
  expect(traceId).toBe("09".repeat(16));
});

test("a later version's trace may have more", () => {
  expect(contextWith({ traceparent: `${TRACE.replace("00", "01")}-more` }).traceId).toBe("ab".repeat(16));
});

test.each([
  ["x-capsem-client", "x".repeat(129)],
  ["x-capsem-client", "caf\u00e9"],
  ["x-capsem-client", "a\tb"],
  ["x-capsem-client", ""],
  ["x-capsem-turn", "x".repeat(129)],
  ["x-capsem-turn", "\u001b[2J"],
])("%s of %j was not said", (name, value) => {
  expect(contextWith({ [name]: value })).toMatchObject({ client: null, turn: null });
});

test("a token's fingerprint is the gateway's word alone", () => {
  const token = { "x-capsem-token-id": "0123abcd" };
  expect(contextWith(token).tokenId).toBeNull();
  const gateway = { "x-capsem-requester": "gateway" };
  expect(contextWith({ ...token, ...gateway })).toMatchObject({
    tokenId: "0123abcd",
    requester: { kind: "gateway" },
  });
  for (const bad of ["0123abcde", "0123ABCD", "x", ""]) {
    expect(contextWith({ ...gateway, "x-capsem-token-id": bad }).tokenId).toBeNull();
  }
});
