import { Environment } from "@marcbachmann/cel-js";
import { expect, test } from "vitest";
import { EVENT_TYPE_NAMES } from "../event/event-table.ts";
import { CEL_TYPES, FIELD_PATHS, FIELD_STRUCTS, fieldRow } from "../event/field-table.ts";
import type { CelValue } from "../event/value.ts";
import { Random } from "../testing/random.ts";
import { aboutField, randomCondition } from "../testing/random-condition.ts";
import { randomEvent, without } from "../testing/random-event.ts";
import { type Condition, compileCondition, isCondition } from "./condition.ts";
import type { Facts } from "./evaluate.ts";
import { NoValue, type Outcome } from "./outcome.ts";

function compiled(source: string): Condition {
  const condition = compileCondition(source);
  if (!isCondition(condition)) throw new Error(`${source}: ${condition.message}`);
  return condition;
}

const FACTS: Facts = new Map<string, CelValue>([
  ["http", true],
  ["http.host", "api.example.com"],
  ["http.port", 443n],
  ["http.body", "Select * FROM users"],
  ["http.headers", new Map([["x-key", "v"]])],
  ["vm.labels", ["prod", "eu"]],
  [
    "mcp.request.arguments",
    new Map<string, CelValue>([
      ["n", 3n],
      ["f", 0.5],
      ["t", "text"],
      ["l", [1n, "x"]],
    ]),
  ],
  ["label.confidentiality", "internal"],
  ["label.integrity", "untrusted"],
]);

function word(outcome: Outcome): string {
  if (!(outcome instanceof NoValue)) return String(outcome);
  return outcome.fault === undefined ? "absent" : "fault";
}

test.each([
  ["true", "http.port == 443 && http.port in [80, 443] && -http.port < -1 && http.port % 2 == 1"],
  ["true", 'http.host.startsWith("api.") && http.host.endsWith(".com") && http.host.contains("example")'],
  ["true", 'host_in(http.host, "example.com") && !host_in(http.host, "ample.com")'],
  ["true", 'http.body.lowerAscii().matches("select .* from")'],
  ["false", 'http.body.matches("^from")'],
  ["true", 'http.headers["x-key"] == "v" && "x-key" in http.headers'],
  ["true", '"prod" in vm.labels && vm.labels.exists(l, l == "eu") && vm.labels.all(l, size(l) > 1)'],
  ["true", 'vm.labels.exists_one(l, l.contains("o")) && size(vm.labels.filter(l, l == "eu")) == 1'],
  ["true", 'vm.labels.map(l, l + "!") == ["prod!", "eu!"]'],
  ["true", "mcp.request.arguments.n + 1 == 4 && mcp.request.arguments.f < 0.75"],
  ["true", 'mcp.request.arguments.n == 3.0 && mcp.request.arguments.l[1] == "x"'],
  ["true", 'tainted(label, "untrusted") && tainted(label, "internal") && tainted(label, "user")'],
  ["false", 'tainted(label, "secret")'],
  ["true", "http.port == 443 ? true : false"],
  ["true", 'int("12") == 12 && double(1) == 1.0 && string(http.port) == "443" && size("é💥") == 2'],
  [
    "true",
    "has(http.host) && !has(http.method) && has(mcp.request.arguments.n) && !has(mcp.request.arguments.zz)",
  ],
  // What the event does not have.
  ["absent", 'http.method == "GET"'],
  ["absent", 'http.method != "GET"'],
  ["absent", '!(http.method == "GET")'],
  ["absent", "mcp.request.arguments.zz == 1"],
  ["absent", 'vm.labels[9] == "x"'],
  ["absent", "file.import.size > 0 ? true : true"],
  ["absent", "model.request.tool_calls.all(m, false)"],
  ["false", 'http.method == "GET" && http.port == 1'],
  ["true", 'http.method == "GET" || http.port == 443'],
  ["false", "has(mcp.request.arguments.zz.deeper)"],
  // What is there and cannot be computed.
  ["fault", "mcp.request.arguments.t > 1"],
  ["fault", "!mcp.request.arguments.t"],
  ["fault", 'mcp.request.arguments.n.startsWith("x")'],
  ["fault", "http.port / 0 == 1"],
  ["fault", "http.port * 9223372036854775807 > 0"],
  ["fault", "int(http.host) == 1"],
  ["fault", "mcp.request.arguments.n.exists(x, true)"],
  ["fault", "mcp.request.arguments.t ? true : false"],
  ["true", "mcp.request.arguments.t > 1 || http.port == 443"],
  ["false", "mcp.request.arguments.t > 1 && http.port == 1"],
  // Absence wins over a fault: otherwise a rule about one thing could block another.
  ["absent", 'http.port / 0 == 1 && http.method == "GET"'],
  ["absent", 'http.method == "GET" || http.port / 0 == 1'],
  ["absent", "http.port / 0 == http.status"],
])("%s: %s", (expected, source) => {
  expect(word(compiled(source).evaluate(FACTS))).toBe(expected);
});

test("names of JavaScript's prototypes are names like any other", () => {
  for (const name of ["constructor", "__proto__", "toString", "hasOwnProperty"]) {
    expect(word(compiled(`mcp.request.arguments["${name}"] == 1`).evaluate(FACTS))).toBe("absent");
    expect(word(compiled(`http.headers["${name}"] == "x"`).evaluate(FACTS))).toBe("absent");
    expect(word(compiled(`"${name}" in http.headers`).evaluate(FACTS))).toBe("false");
  }
});

test("a pattern that hangs a backtracking engine is matched in linear time", () => {
  const facts: Facts = new Map([["http.body", `${"a".repeat(65_000)}!`]]);
  expect(compiled('http.body.matches("^(a+)+$")').evaluate(facts)).toBe(false);
  expect(compiled('http.body.matches("^(a|a)*$")').evaluate(facts)).toBe(false);
});

test("a field that is absent never matches and never faults, whatever is asked of it", () => {
  const random = new Random(11);
  for (const path of FIELD_PATHS) {
    for (let round = 0; round < 40; round += 1) {
      const condition = compiled(aboutField(random, path));
      const type = random.pick(EVENT_TYPE_NAMES);
      const event = without(randomEvent(random, type), path);
      // `has` on a key of an absent map is false; everything else has no value.
      const expected = /^has/.test(condition.source) ? "false" : "absent";
      expect(word(condition.evaluate(event.facts)), condition.source).toBe(expected);
      const negated = compiled(`!(${condition.source})`).evaluate(event.facts);
      if (expected === "absent") expect(word(negated), condition.source).toBe("absent");
    }
  }
});

test("no condition throws or gives anything but true, false or no value", () => {
  const random = new Random(12);
  for (let round = 0; round < 3_000; round += 1) {
    const condition = compiled(randomCondition(random));
    const event = randomEvent(random, random.pick(EVENT_TYPE_NAMES));
    expect(["true", "false", "absent", "fault"]).toContain(word(condition.evaluate(event.facts)));
  }
});

/** The library as it comes, over the same table: the oracle of everything that is plain CEL. */
function createOracle(): (source: string, facts: Facts) => string {
  const environment = new Environment({ unlistedVariablesAreDyn: false });
  const schema = (prefix: string): Record<string, string> => {
    const fields = FIELD_PATHS.filter((path) => path.startsWith(`${prefix}.`));
    return Object.fromEntries(
      fields.map((path) => {
        const row = fieldRow(path);
        return [
          path.slice(prefix.length + 1).replaceAll(".", "__"),
          row === undefined ? "dyn" : CEL_TYPES[row.kind],
        ];
      }),
    );
  };
  const roots = [...FIELD_STRUCTS].filter((name) => !name.includes("."));
  for (const root of roots) environment.registerVariable({ name: root, schema: schema(root) });
  // The library wants nested records; one level with joined names asks the same questions.
  const flat = (source: string) =>
    FIELD_PATHS.toSorted((a, b) => b.length - a.length).reduce((text, path) => {
      const [root = "", ...rest] = path.split(".");
      return text.replaceAll(
        new RegExp(`(?<![\\w.])${path.replaceAll(".", "\\.")}(?!\\w)`, "g"),
        `${root}.${rest.join("__")}`,
      );
    }, source);
  return (source, facts) => {
    const context: Record<string, Record<string, CelValue>> = Object.fromEntries(
      roots.map((root) => [root, {}]),
    );
    for (const [path, value] of facts) {
      const [root = "", ...rest] = path.split(".");
      const record = context[root];
      if (fieldRow(path) !== undefined && record !== undefined) record[rest.join("__")] = value as CelValue;
    }
    try {
      return String(environment.evaluate(flat(source), context));
    } catch {
      return "none";
    }
  };
}

test("the CEL library agrees on every condition that is plain CEL", () => {
  const random = new Random(13);
  const oracle = createOracle();
  const seen = { true: 0, false: 0, none: 0 };
  for (let round = 0; round < 3_000; round += 1) {
    const source = randomCondition(random, { isPlainCel: true });
    const event = randomEvent(random, random.pick(EVENT_TYPE_NAMES));
    const outcome = compiled(source).evaluate(event.facts);
    const ours = outcome instanceof NoValue ? "none" : (String(outcome) as "true" | "false");
    seen[ours] += 1;
    expect(oracle(source, event.facts), `${source} on ${JSON.stringify(event)}`).toBe(ours);
  }
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(100);
});
