import { mcpServerFields, mcpServerName, RESERVED_MCP_SERVERS } from "@capsem/api";
import {
  applyEdits,
  emptyLayer,
  POLICY_LIMITS,
  RESERVED_SERVERS,
  SERVER_KEYS,
  SERVER_PROTOCOLS,
  SERVER_TRANSPORTS,
} from "@capsem/policy";
import { expect, test } from "vitest";

const url = "https://a.test/mcp";

function isTaken(name: string, fields: Readonly<Record<string, unknown>>): boolean {
  const edit = { kind: "put_server", id: `mcp.servers.${name}`, fields } as const;
  return applyEdits({ user: emptyLayer("user"), corp: emptyLayer("corp") }, [edit]).kind === "ok";
}

const isOfRoute = (fields: unknown) => mcpServerFields.safeParse(fields).success;

test("the route and the file know the same keys, words and names", () => {
  expect([...SERVER_KEYS].sort()).toEqual(Object.keys(mcpServerFields.shape).sort());
  expect([...RESERVED_SERVERS].sort()).toEqual([...RESERVED_MCP_SERVERS].sort());
  const { transport, protocol } = mcpServerFields.shape;
  expect(transport.unwrap().options).toEqual([...SERVER_TRANSPORTS]);
  expect(protocol.unwrap().options).toEqual([...SERVER_PROTOCOLS]);
  for (const name of [
    "a",
    "a-b_c",
    "7",
    "a".repeat(32),
    "A",
    "a__b",
    "_a",
    "a-",
    "",
    "a.b",
    "a".repeat(33),
    "ä",
  ])
    expect([name, isTaken(name, { url })]).toEqual([name, mcpServerName.safeParse(name).success]);
});

test.each<[string, Readonly<Record<string, unknown>>, boolean]>([
  ["nothing more", {}, true],
  ["a long URL", { url: url.padEnd(POLICY_LIMITS.serverUrlCharsMax, "x") }, true],
  ["a longer URL", { url: url.padEnd(POLICY_LIMITS.serverUrlCharsMax + 1, "x") }, false],
  ["a wrong word", { transport: "stdio" }, false],
  ["another wrong word", { protocol: "2026-07-28" }, false],
  ["a flag", { enabled: false }, true],
  ["no flag", { enabled: 0 }, false],
  ["grants", { grants: ["10.0.0.1:80", "[fd00::1]:443", "db.internal:5432"] }, true],
  ["a grant without a port", { grants: ["10.0.0.1"] }, false],
  ["as many grants", { grants: Array.from({ length: 16 }, (_, at) => `10.0.0.${at}:80`) }, true],
  ["too many grants", { grants: Array.from({ length: 17 }, (_, at) => `10.0.0.${at}:80`) }, false],
  ["headers", { headers: { Authorization: `Bearer credential:blake3:${"0".repeat(64)}` } }, true],
  ["no header", { headers: { "a b": "x" } }, false],
  ["a long header", { headers: { A: "x".repeat(4_096) } }, true],
  ["a longer header", { headers: { A: "x".repeat(4_097) } }, false],
  ["headers as a list", { headers: ["A"] }, false],
  ["a time", { timeout_secs: 300 }, true],
  ["no time", { timeout_secs: 0 }, false],
  ["a longer time", { timeout_secs: 301 }, false],
  ["half a second", { timeout_secs: 0.5 }, false],
  ["another key", { command: "npx" }, false],
])("%s: both take it, or neither", (_, more, isGood) => {
  const fields = { url, ...more };
  expect([isOfRoute(fields), isTaken("a", fields)]).toEqual([isGood, isGood]);
});

test("what the route does not look at, the file's check refuses", () => {
  for (const more of [
    { url: "ftp://a.test/" },
    { url: "https://user:word@a.test/" },
    { grants: ["a:70000"] },
    { headers: { Host: "b.test" } },
    { headers: { A: "x\r\nB: y" } },
  ]) {
    expect(isOfRoute({ url, ...more })).toBe(true);
    expect(isTaken("a", { url, ...more })).toBe(false);
  }
  expect(isTaken("local", { url })).toBe(false);
});
