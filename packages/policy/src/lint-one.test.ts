import { expect, test } from "vitest";
import { decide, decideUnindexed } from "./decide.ts";
import { FIELDS_TO_COME } from "./event/arrivals.ts";
import { type SecurityEvent, securityEvent } from "./event/event.ts";
import { typesThatMake } from "./event/event-table.ts";
import { lintRules } from "./lint.ts";
import { layerOf, snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";
import { randomCondition } from "./testing/random-condition.ts";
import { randomEvent, without } from "./testing/random-event.ts";

const ID = { event_id: "0123456789ab" };

function fileOf(match: string, more = 'action = "block"'): string {
  return `[profiles.rules.a]\nmatch = '''${match}'''\n${more}\n`;
}

function lint(text: string, source: "user" | "corp" = "user"): string[] {
  return lintRules(layerOf(source, text).rules).map(({ kind, message }) => `${kind}: ${message}`);
}

const nothing = (what: string) => [`unobserved: "profiles.rules.a" matches nothing in this version: ${what}`];

test.each<[string, string[]]>([
  ['dns.qname == "x.test"', nothing('"dns.qname" comes with the network')],
  ['event.type == "dns.query"', nothing('"dns.query" comes with the network')],
  ['vm.name == "x" && model.name == "y"', nothing('"model.name" comes with models')],
  [
    'http.host == "x.test" && network.destination.port == 1',
    nothing('"network.destination.port" comes with the network'),
  ],
  ['http.status == 2 || dns.qname == "x.test"', nothing('"http.status", "dns.qname" come with the network')],
  [
    'http.status == 1 || network.name == "x" || dns.qname == "x" || dns.qtype == "A"',
    nothing('"http.status", "network.name", "dns.qname" and 1 more come with the network'),
  ],
  [
    "http.status == 1 || has(capsule.name)",
    nothing('"http.status" comes with the network; "capsule.name" comes with capsules'),
  ],
  [
    'event.type == "process.exec" && tainted(label, "secret")',
    nothing('"label.confidentiality", "label.integrity" come with labels'),
  ],
  ['process.command == "x" && process.name == "y"', nothing('"process.name" comes with a view into VMs')],
  [
    'event.type in ["security.ask", "security.rule"]',
    nothing('"security.ask", "security.rule" come in a later version'),
  ],
  ['file.read.path.startsWith("/etc")', nothing('"file.read.path" comes with a view into VMs')],
  ["file.create.size > 5", nothing('"file.create.size" comes with a view into VMs')],
  ["has(process.audit)", nothing('"process.audit" comes with a view into VMs')],
  [
    '!(http.status == 2 && dns.qname == "y.test")',
    nothing('"http.status", "dns.qname" come with the network'),
  ],
  ['vm.labels.exists(l, l == "x")', nothing('"vm.labels" comes in a later version')],
  // They may match what is made today.
  ['process.command == "x"', []],
  ["true", []],
  ['tainted(label, "secret")', []],
  ['http.host == "x.test"', []],
  ['mcp.method == "y" && process.name == "x"', []],
  ['http.host == "x.test" || process.command == "x"', []],
  ['event.type in ["http.request", "process.exec"]', []],
  ['!has(http.host) && vm.name == "x"', []],
  ['!(http.host == "x.test" || true) || vm.name == "x"', []],
  ['has(http.host) ? http.port == 1 : vm.name == "x"', []],
  ['file.delete.path == "/x" || file.create.ext == "x"', []],
  ['file.content.contains("x")', []],
])("%s", (match, expected) => {
  expect(lint(fileOf(match))).toEqual(expected);
});

test("whose event is to come is said of the corporation's rules too, and not of the built-in ones", () => {
  expect(lint(fileOf('dns.qname == "x.test"').replace("profiles", "corp"), "corp")).toEqual([
    'unobserved: "corp.rules.a" matches nothing in this version: "dns.qname" comes with the network',
  ]);
  expect(lintRules(snapshotOf("").rules)).toEqual([]);
});

test("what is called unobserved matches no event of this version", () => {
  const random = new Random(71);
  const types = typesThatMake([]);
  const now = (event: SecurityEvent) =>
    Object.entries(FIELDS_TO_COME)
      .filter(([, { already = [] }]) => !already.includes(event.type))
      .reduce((less, [path]) => without(less, path), event);
  let found = 0;
  for (let round = 0; round < 600; round += 1) {
    const snapshot = snapshotOf(fileOf(randomCondition(random, {}, 2)));
    if (!lintRules(snapshot.rules).some(({ kind }) => kind === "unobserved")) continue;
    found += 1;
    for (let count = 0; count < 30; count += 1) {
      const { explanation } = decideUnindexed(snapshot, now(randomEvent(random, random.pick(types))));
      expect(explanation.matched.map(({ rule_id }) => rule_id)).not.toContain("profiles.rules.a");
    }
  }
  expect(found).toBeGreaterThan(100);
});

test.each(["preprocess", "rewrite", "redact", "mutate", "neutralize", "postprocess"])(
  "a rule that says %s does nothing that anybody carries out",
  (action) => {
    const text = fileOf("has(process.command)", `action = "${action}"`);
    expect(lint(text)).toEqual([
      expect.stringMatching(
        /^inert: "profiles.rules.a" changes nothing in this version: \w+ comes with the network$/,
      ),
    ]);
    // The reason why it is said: the act is allowed as if there were no rule.
    expect(
      decide(snapshotOf(text), securityEvent("process.exec", ID, { "process.command": "x" })),
    ).toMatchObject({
      action: "allow",
    });
  },
);

test.each<[string, string]>([
  [
    'process.command.matches("\\bwget\\b")',
    String.raw`holds a backspace, which is what \b makes in quotes; write r"\bwget\b" or "\\bwget\\b" ("\u0008" where it is meant)`,
  ],
  ["process.command.matches('\\bwget\\b\\\\s+x')", String.raw`write r"\bwget\b\s+x" or "\\bwget\\b\\s+x"`],
  ['process.command.matches("\\b\\"x\\"\\b")', String.raw`write \\b, or the text as r"…"`],
  [`process.command.matches("\\b${"x".repeat(90)}")`, String.raw`write \\b, or the text as r"…"`],
  ['file.import.path.startsWith("C:\\bin")', String.raw`write r"C:\bin" or "C:\\bin"`],
  ['process.command == "C:\\bin"', "a backspace"],
  ['process.command in ["x", "C:\\vm"]', "a vertical tab"],
  ['process.command.contains("C:\\app")', "a bell"],
  ['process.command.endsWith("C:\\food")', "a form feed"],
  ['vm.name == "x" || !process.command.contains("\\b")', "a backspace"],
])("%s holds what is hardly meant", (match, expected) => {
  expect(lint(fileOf(match))).toEqual([expect.stringMatching(/^suspect: "profiles.rules.a" holds a /)]);
  expect(lint(fileOf(match))[0]).toContain(expected);
  expect(lint(fileOf(match))[0]).not.toMatch(/\p{Cc}/u);
});

test("such a character that the file's own quotes made is told apart", () => {
  const text = '[profiles.rules.a]\naction = "block"\nmatch = "process.command.matches(\'\\bwget\\b\')"\n';
  expect(lint(text)[0]).toContain(String.raw`write r"\bwget\b" or "\\bwget\\b"`);
  expect(lint(text)[0]).toContain("put match between ' and ', where the file leaves backslashes alone");
});

test.each([
  'process.command.matches("\\\\bwget\\\\b")',
  'process.command.matches(r"\\bwget\\b")',
  'process.command.contains("a\\tb\\nc\\r")',
  'process.command.contains("\\u0008")',
  'process.command.contains("\\x08\\x0B\\u000c\\007")',
  'process.exec.stdout.contains("\\x1b]52;")',
])("%s is meant so", (match) => {
  expect(lint(fileOf(match))).toEqual([]);
});

test("what is suggested blocks what the author meant, and what was written does not", () => {
  const wget = securityEvent("process.exec", ID, { "process.command": "cd /tmp; wget x" });
  const written = fileOf('process.command.matches("\\bwget\\b")');
  expect(decide(snapshotOf(written), wget).action).toBe("allow");
  const [, ...suggested] = /write (r"[^ ]+") or ("[^ ]+") /.exec(lint(written)[0] ?? "") ?? [];
  expect(suggested).toHaveLength(2);
  for (const text of suggested) {
    const mended = fileOf(`process.command.matches(${text})`);
    expect(decide(snapshotOf(mended), wget).action).toBe("block");
    expect(lint(mended)).toEqual([]);
  }
});

test.each<[string, string, boolean]>([
  ["true", 'action = "ask"', true],
  ["has(process.command)", 'action = "ask"\npriority = 10', true],
  ["has(process.command)", 'action = "ask"\npriority = 11', false],
  ["has(process.command)", 'action = "ask"\npriority = 20', false],
  ["has(process.command)", 'action = "block"\npriority = 10', false],
  ["has(process.command)", 'action = "ask"\nenabled = false', false],
  // No rule can name exactly one of these anyhow.
  ["has(process.exec.stdout)", 'action = "ask"', false],
])("%s with %s: nobody can approve it for always: %s", (match, more, isSaid) => {
  const said =
    'no_always: "profiles.rules.a" asks at priority 10, before which there is no room for the rule that ' +
    "an approval for always writes; give it priority = 20";
  expect(lint(fileOf(match, more))).toEqual(isSaid ? [said] : []);
});

test("the corporation's asks are for always never, so nothing is said of their priority", () => {
  const text = '[corp.rules.a]\naction = "ask"\nmatch = "has(process.command)"\n';
  expect(lint(text, "corp")).toEqual([]);
});
