import { expect, test } from "vitest";
import { Random } from "../testing/random.ts";
import { randomEvent } from "../testing/random-event.ts";
import { FIELDS_TO_COME } from "./arrivals.ts";
import { type EventFields, eventFromJson, securityEvent } from "./event.ts";
import {
  CARRIED,
  EVENT_TYPE_NAMES,
  EVENT_TYPES,
  type EventType,
  fieldArrival,
  typeArrival,
  typesThatMake,
} from "./event-table.ts";
import { FIELD_STRUCTS, fieldRow } from "./field-table.ts";

const ID = { event_id: "0123456789ab" };
const request = { "http.host": "example.com", "http.method": "GET" } as const;

test("an event holds its fields in their one form, and says what it is", () => {
  const event = securityEvent(
    "http.request",
    { ...ID, trace_id: "t", generation: 2 },
    {
      "http.host": "EXAMPLE.com.",
      "http.method": "get",
      "http.port": 443,
      "http.headers": { "X-A": "1", "x-a": "2" },
    },
  );
  expect(event.facts.get("event.type")).toBe("http.request");
  expect(event.facts.get("http.host")).toBe("example.com");
  expect(event.facts.get("http.method")).toBe("GET");
  expect(event.facts.get("http.port")).toBe(443n);
  expect(event.facts.get("http.headers")).toEqual(new Map([["x-a", "1, 2"]]));
  expect(event.facts.get("http.valid")).toBe(true);
  expect(event.facts.get("http.truncated")).toBe(false);
  expect(event.facts.get("http")).toBe(true);
  expect(event.facts.has("dns")).toBe(false);
});

test("a job says who runs it and where, before and after, and a change may be of any kind", () => {
  const job = { "process.exec.id": "job_1", "process.exec.user": "root", "process.exec.cwd": "/w/../x" };
  const started = securityEvent("process.exec", ID, { "process.command": "ls", ...job });
  expect(started.facts.get("process.exec.cwd")).toBe("/x");
  expect(securityEvent("process.exec_complete", ID, { ...job, "process.exec.exit_code": 0 }).facts.size).toBe(
    10,
  );
  for (const action of ["restart", "rename", "persist"]) {
    expect(() =>
      securityEvent("vm.lifecycle", ID, { "vm.lifecycle.action": action, "vm.name": "n" }),
    ).not.toThrow();
  }
  for (const key of ["limits.idle_secs", "profiles.rules.a", "credentials.openai", "corp.reload"]) {
    const change = { "settings.key": key, "settings.source": "user" };
    expect(() => securityEvent("settings.change", ID, change)).not.toThrow();
  }
});

const long = "é".repeat(40_000);
test.each<[string, EventType, object, string]>([
  ["an unknown field", "http.request", { ...request, "http.hst": "x" }, '"http.hst" does not exist'],
  ["a field of another event", "http.request", { ...request, "dns.qname": "x" }, "does not belong"],
  ["its own type as a field", "http.request", { ...request, "event.type": "dns.query" }, "does not belong"],
  ["a missing field", "http.request", { "http.host": "example.com" }, '"http.method" is missing'],
  ["a text for a number", "http.request", { ...request, "http.port": "80" }, "no safe integer"],
  ["a fraction for an integer", "http.request", { ...request, "http.port": 1.5 }, "no safe integer"],
  ["an unsafe integer", "http.request", { ...request, "http.port": 2 ** 53 }, "no safe integer"],
  ["NaN", "model.call", { "model.provider": "x", "model.response.cost_usd": Number.NaN }, "no finite number"],
  ["a host that is none", "http.request", { ...request, "http.host": "a b" }, "no host"],
  [
    "an address that is none",
    "network.connect",
    { "network.destination.ip": "x", "network.destination.port": 1 },
    "no IP",
  ],
  ["a value outside its list", "http.request", { ...request, "http.scheme": "ftp" }, "not one of"],
  [
    "a user that jobs do not run as",
    "process.exec",
    { "process.command": "x", "process.exec.user": "me" },
    "not one of",
  ],
  [
    "a result before there is one",
    "process.exec",
    { "process.command": "x", "process.exec.exit_code": 0 },
    "does not belong",
  ],
  ["an act that VMs do not know", "vm.lifecycle", { "vm.lifecycle.action": "reboot" }, "not one of"],
  ["a name that is too long", "http.request", { ...request, "http.path": "x".repeat(16_385) }, "longer than"],
  [
    "a list of something else",
    "vm.lifecycle",
    { "vm.lifecycle.action": "stop", "vm.labels": [1] },
    "no list of texts",
  ],
  ["arguments that are no map", "mcp.tool_call", call([]), "no map"],
  ["arguments that are no JSON", "mcp.tool_call", call({ f: () => 1 }), "not JSON"],
  ["arguments that are too deep", "mcp.tool_call", call(nested(40)), "too deep"],
  ["a key that is too long", "mcp.tool_call", call({ ["k".repeat(1_025)]: 1 }), "too long a key"],
  [
    "a map with too many keys",
    "mcp.tool_call",
    call(Object.fromEntries(argv(300).map((key) => [key, 1]))),
    "too large",
  ],
  ["arguments that are too many", "mcp.tool_call", call({ a: wide(100, 100) }), "too large"],
])("%s is refused", (_, type, fields, message) => {
  expect(() => securityEvent(type, ID, fields as EventFields)).toThrow(message);
});

function call(given: unknown) {
  return { "mcp.server.name": "s", "mcp.tool_call.name": "t", "mcp.request.arguments": given };
}

function argv(count: number): string[] {
  return Array.from({ length: count }, (_, n) => `a${n}`);
}

function nested(depth: number): object {
  return depth === 0 ? {} : { a: nested(depth - 1) };
}

function wide(rows: number, columns: number): unknown {
  return Array.from({ length: rows }, () => Array.from({ length: columns }, () => 1));
}

test("an id that is not 12 hex digits is refused, and so is an unknown type", () => {
  expect(() => securityEvent("security.ask", { event_id: "x" }, {})).toThrow("12 hex digits");
  expect(() => eventFromJson({ type: "security.ask", ...ID, extra: 1, fields: {} })).toThrow('"extra"');
  expect(() => eventFromJson({ type: "security.ask", ...ID, trace_id: {}, fields: {} })).toThrow("trace");
  expect(() => eventFromJson({ type: "nothing", ...ID, fields: {} })).toThrow(/its type is unknown$/);
  expect(() => eventFromJson({ type: "proces.exec", ...ID, fields: {} })).toThrow(
    'its type is unknown; did you mean "process.exec"?',
  );
  expect(() => eventFromJson({ type: "x".repeat(10_000), ...ID, fields: {} })).toThrow(/x{80}": its type/);
  expect(() => eventFromJson(null)).toThrow("no object");
});

test.each<[EventType, string, string]>([
  ["process.exec", "process.comand", 'does not exist; did you mean "process.command"?'],
  ["process.exec", "file.import.pth", 'does not exist; did you mean "file.import.path"?'],
  ["file.import", "file.export.path", 'does not belong to it; did you mean "file.import.path"?'],
  ["process.exec", "settings.source", "does not belong to it"],
  ["process.exec", "event.type", "does not belong to it"],
  ["process.exec", "zzzzzzzzzzzz", "does not exist"],
])("%s with %s says what may have been meant", (type, path, message) => {
  const fields = { [path]: "x" } as EventFields;
  expect(() => eventFromJson({ type, ...ID, fields })).toThrow(`field "${path}" ${message}`);
});

test("what a parser could not read may lack the fields that it failed on", () => {
  expect(securityEvent("dns.query", ID, { "dns.valid": false }).facts.get("dns.valid")).toBe(false);
});

test("a body is cut at 64 KiB at a whole character, and says so", () => {
  const whole = securityEvent("http.request", ID, { ...request, "http.body": "é".repeat(32_768) });
  expect(whole.facts.get("http.truncated")).toBe(false);
  const cut = securityEvent("http.request", ID, { ...request, "http.body": long });
  expect(cut.facts.get("http.body")).toBe("é".repeat(32_768));
  expect(cut.facts.get("http.truncated")).toBe(true);
  const odd = securityEvent("http.request", ID, { ...request, "http.body": `x${long}` });
  expect(odd.facts.get("http.body")).toBe(`x${"é".repeat(32_767)}`);
  const bytes = securityEvent("http.request", ID, {
    ...request,
    "http.body": new TextEncoder().encode(long),
  });
  expect(bytes.facts.get("http.body")).toBe("é".repeat(32_768));
  expect(bytes.facts.get("http.truncated")).toBe(true);
});

test("lists, maps and the texts in them are cut at their bounds, and say so", () => {
  const audit = securityEvent("process.audit", ID, {
    "process.audit.exe": "/x",
    "process.audit.argv": argv(300),
  });
  expect(audit.facts.get("process.audit.argv")).toHaveLength(256);
  expect(audit.facts.get("process.truncated")).toBe(true);
  const tool = securityEvent(
    "mcp.tool_call",
    ID,
    call({ content: "x".repeat(100_000), path: "/etc/shadow" }) as EventFields,
  );
  expect(tool.facts.get("mcp.truncated")).toBe(true);
  expect(tool.facts.get("mcp.request.arguments")).toEqual(
    new Map([
      ["content", "x".repeat(65_536)],
      ["path", "/etc/shadow"],
    ]),
  );
});

test("a path is seen without detours, and its name and extension follow from it", () => {
  const event = securityEvent("file.import", ID, {
    "file.import.path": "/home//u/./x/../../../etc/../a/B.Tar.GZ",
    "file.import.name": "harmless.txt",
    "file.import.content": "hello",
  });
  expect(event.facts.get("file.import.path")).toBe("/a/B.Tar.GZ");
  expect(event.facts.get("file.import.name")).toBe("B.Tar.GZ");
  expect(event.facts.get("file.import.ext")).toBe("gz");
  expect(event.facts.get("file.content")).toBe("hello");
});

test("the stored form is JSON and gives the same event again, for every type", () => {
  const random = new Random(21);
  for (const type of EVENT_TYPE_NAMES) {
    for (let round = 0; round < 30; round += 1) {
      const event = randomEvent(random, type);
      const again = eventFromJson(JSON.parse(JSON.stringify(event)));
      expect(again.facts).toEqual(event.facts);
      expect(again.identity).toEqual(event.identity);
    }
  }
});

test("what is to come is in the tables, and no event of this version needs it", () => {
  for (const [name, { already = [] }] of Object.entries(FIELDS_TO_COME)) {
    expect(FIELD_STRUCTS.has(name) || fieldRow(name) !== undefined, name).toBe(true);
    expect(typesThatMake([name]), name).toEqual(already);
  }
  const made = typesThatMake([]);
  expect(made.length).toBeGreaterThan(5);
  for (const type of made) {
    expect(typeArrival(type)).toBeUndefined();
    for (const path of EVENT_TYPES[type].requires) expect(fieldArrival(path), path).toBeUndefined();
  }
  for (const path of [
    "http.status",
    "file.read.name",
    "file.read",
    "network",
    "network.source.ip",
    "capsule",
  ]) {
    expect(fieldArrival(path), path).toMatch(/^(with|in) /);
  }
});

test("the tables hold together: what is required is carried, and everything carried exists", () => {
  for (const type of EVENT_TYPE_NAMES) {
    const carried = CARRIED.get(type) ?? new Set();
    for (const path of EVENT_TYPES[type].requires) expect(carried).toContain(path);
    for (const path of carried) expect(fieldRow(path)).toBeDefined();
    for (const name of EVENT_TYPES[type].carries) {
      const below = [...carried].filter((path) => path === name || path.startsWith(`${name}.`));
      expect(below.length, `${type} carries ${name}`).toBeGreaterThan(0);
    }
  }
});
