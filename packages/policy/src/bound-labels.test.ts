import { expect, test } from "vitest";
import { allowRuleFor } from "./allow-rule.ts";
import { boundLabels, LABEL_PATHS, type LabelPath } from "./bound-labels.ts";
import { compileCondition, isCondition } from "./cel/condition.ts";
import { decide } from "./decide.ts";
import { type SecurityEvent, securityEvent } from "./event/event.ts";
import {
  ANY_SOURCE,
  CONFIDENTIALITY,
  INTEGRITY,
  isCovered,
  type Label,
  label,
  labelFields,
} from "./label.ts";
import { sha256, snapshotOf } from "./testing/policies.ts";

function callWith(own: Label): SecurityEvent {
  return securityEvent(
    "mcp.tool_call",
    { event_id: "0123456789ab" },
    { ...labelFields(own), "mcp.server.name": "s", "mcp.tool_call.name": "t" },
  );
}

const ruleOf = (name: string, action: string, priority: number, match: string) =>
  `[profiles.rules.${name}]\naction = "${action}"\npriority = ${priority}\nmatch = '${match}'\n`;
const ASKS = ruleOf("asks", "ask", 20, 'mcp.server.name == "s"');
const [SECRECY, INTEGRITY_PATH, SOURCES] = LABEL_PATHS;

test.each<[string, string, readonly string[]]>([
  ["no rule but the one that asks, which looks elsewhere", ASKS, []],
  [
    "a level of integrity",
    ruleOf("asks", "ask", 20, 'mcp.server.name == "s" || tainted(label, "untrusted")'),
    [INTEGRITY_PATH],
  ],
  [
    "a level of secrecy alone",
    ruleOf("asks", "ask", 20, '!(has(label.confidentiality) && tainted(label, "secret"))'),
    [SECRECY],
  ],
  ["the sources", ruleOf("asks", "ask", 20, 'label.sources.all(each, each != "x")'), [SOURCES]],
  [
    "a field by its name",
    ruleOf("asks", "ask", 20, 'has(label.integrity) && mcp.server.name == "s"'),
    [INTEGRITY_PATH],
  ],
  [
    "another rule that asks of it as well, later",
    `${ASKS}${ruleOf("b", "ask", 30, 'tainted(label, "untrusted")')}`,
    [INTEGRITY_PATH],
  ],
  [
    "one of the same priority that would block another label",
    `${ASKS}${ruleOf("b", "block", 20, 'label.integrity == "user"')}`,
    [INTEGRITY_PATH],
  ],
  [
    "one of the same priority that allows",
    `${ASKS}${ruleOf("b", "allow", 20, 'tainted(label, "untrusted")')}`,
    [],
  ],
  [
    "one of the same priority about another server",
    `${ASKS}${ruleOf("b", "block", 20, 'mcp.server.name == "x" && tainted(label, "untrusted")')}`,
    [],
  ],
  [
    "one of the same priority about other acts",
    `${ASKS}${ruleOf("b", "block", 20, 'event.type == "file.export" && label.integrity == "untrusted"')}`,
    [],
  ],
  [
    "one that comes later and does not match",
    `${ASKS}${ruleOf("b", "block", 30, 'label.integrity == "user"')}`,
    [],
  ],
  // Built-in rules keep secrets in, and a rule of the user's for "always" would go before them.
  ["the posture", "", [SECRECY]],
])("with %s, an approval is bound to what decides", (_, text, paths) => {
  const snapshot = snapshotOf(text);
  const event = callWith(label("public", "untrusted", ["mcp:s"]));
  const decision = decide(snapshot, event);
  expect(decision.action).toBe("ask");
  expect(boundLabels(snapshot, event, decision)).toEqual(paths);
});

const SOURCE_SETS = [[], ["a"], ["a", 'b"'], [ANY_SOURCE]];
const LABELS = CONFIDENTIALITY.flatMap((secrecy) =>
  INTEGRITY.flatMap((integrity) => SOURCE_SETS.map((sources) => label(secrecy, integrity, sources))),
);

const BOUND: readonly (readonly LabelPath[])[] = [[], [INTEGRITY_PATH], [SOURCES], LABEL_PATHS];

test("a rule for always holds for what is covered by the label that was approved, in the parts that are bound", () => {
  const snapshot = snapshotOf(ASKS);
  for (const approved of LABELS) {
    for (const labels of BOUND) {
      const event = callWith(approved);
      const made = allowRuleFor(event, decide(snapshot, event), sha256, labels);
      const condition = made.kind === "edit" ? compileCondition(String(made.edit.fields.match)) : null;
      if (condition === null || !isCondition(condition)) throw new Error(JSON.stringify([made, condition]));
      for (const other of LABELS) {
        const seen = label(
          other.confidentiality,
          labels.includes(INTEGRITY_PATH) ? other.integrity : approved.integrity,
          labels.includes(SOURCES) ? other.sources : approved.sources,
        );
        expect(
          condition.evaluate(callWith(other).facts) === true,
          JSON.stringify({ approved, labels, other }),
        ).toBe(isCovered(seen, approved));
      }
    }
  }
});
