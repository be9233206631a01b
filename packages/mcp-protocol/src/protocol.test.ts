import { expect, test } from "vitest";
import {
  eraOf,
  hasMethod,
  isRevision,
  METHODS,
  negotiate,
  REVISIONS,
  RPC_CODES,
  timeoutOf,
} from "./protocol.ts";

test("the revisions, newest first, and their eras", () => {
  expect(REVISIONS.map((revision) => `${revision} ${eraOf(revision)}`)).toEqual([
    "2026-07-28 modern",
    "2025-11-25 legacy",
    "2025-06-18 legacy",
    "2025-03-26 legacy",
    "2024-11-05 legacy",
  ]);
  expect(eraOf("1900-01-01")).toBeNull();
  expect(isRevision("2026-07-29")).toBe(false);
});

test("a handshake gets the revision it asks for, else the newest that has one", () => {
  expect(negotiate("2024-11-05")).toBe("2024-11-05");
  for (const asked of ["2026-07-28", "2099-01-01", "", "toString"])
    expect(negotiate(asked)).toBe("2025-11-25");
});

test("which methods exist in which era", () => {
  const of = (era: "legacy" | "modern") => Object.keys(METHODS).filter((method) => hasMethod(era, method));
  expect(of("modern")).toEqual([
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "subscriptions/listen",
  ]);
  expect(of("legacy")).toContain("initialize");
  expect(of("legacy")).toHaveLength(13);
  for (const name of ["toString", "__proto__", "constructor", "tools/unknown"]) {
    expect(hasMethod("legacy", name)).toBe(false);
    expect(timeoutOf(name)).toBe(60_000);
  }
});

test("how long a call may take", () => {
  expect(timeoutOf("tools/call")).toBe(300_000);
  expect(timeoutOf("tools/list")).toBe(60_000);
  expect(timeoutOf("subscriptions/listen")).toBeNull();
});

test("the codes, as clients see them", () => {
  expect(RPC_CODES).toEqual({
    parseError: -32700,
    invalidRequest: -32600,
    methodNotFound: -32601,
    invalidParams: -32602,
    internalError: -32603,
    timedOut: -32000,
    sessionNotFound: -32001,
    headerMismatch: -32020,
    missingCapability: -32021,
    unsupportedVersion: -32022,
    urlElicitationRequired: -32042,
  });
});
