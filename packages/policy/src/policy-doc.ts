import { FUNCTIONS } from "./cel/function-table.ts";
import {
  COMMON_CARRIES,
  EVENT_TYPES,
  type EventType,
  type EventTypeRow,
  fieldArrival,
} from "./event/event-table.ts";
import { CEL_TYPES, FIELD_PATHS, fieldRow } from "./event/field-table.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { PRESET_NAMES } from "./preset-names.ts";
import { ASK_PRIORITY, CHANGES_TO_COME, RULE_SOURCES, type RuleSource } from "./rule.ts";
import { SETTING_KEYS, type SettingShape, settingRow } from "./settings-table.ts";
import { presetLayer } from "./snapshot.ts";

/** docs/policy-fields.md: everything that a rule or a settings file can say, from the tables that check it. */
export function policyPage(): string {
  return [
    "# What rules and settings can say",
    "",
    "Made from the tables of `packages/policy`; what is not here does not compile.",
    "",
    "```toml",
    "[profiles.rules.no-force-push]",
    'action = "ask"',
    "match = 'process.command.matches(\"git push .*--force\")'",
    'reason = "this rewrites what others have"',
    `priority = ${ASK_PRIORITY}`,
    "```",
    "",
    ...meaning(),
    "",
    "## Fields",
    "",
    "`arrives` says what a field or event comes with; what nothing in this version makes matches nothing, and",
    "`capsem rules lint` says so (`unobserved`).",
    ...roots().flatMap((root) => ["", `### ${root}`, "", ...fieldTable(root)]),
    "",
    "## Event types",
    "",
    `Every event may carry ${COMMON_CARRIES.map(code).join(", ")}.`,
    "",
    ...typeTable(),
    "",
    "## Functions",
    "",
    "| function | what |",
    "|---|---|",
    ...[...FUNCTIONS.values()].map(
      ({ signatures, doc }) => `| ${signatures.map(code).join("<br>")} | ${doc} |`,
    ),
    "",
    "Also `has(field)`, the loops `all`, `exists`, `exists_one`, `filter` and `map`, and the operators of CEL.",
    "",
    "## Rules",
    "",
    ...ruleTable(),
    "",
    "## Settings",
    "",
    "| key | takes | usual | what |",
    "|---|---|---|---|",
    ...SETTING_KEYS.map(settingLine),
    "",
  ].join("\n");
}

/** Made by this version. */
const NOW = "now";
const code = (text: string) => `\`${text}\``;

function meaning(): string[] {
  const kib = (bytes: number) => `${bytes / 1024} KiB`;
  const steps = (count: number) => count.toLocaleString("en-US");
  return [
    'A field that an event does not have has no value, and neither has what is computed from it: `http.host != "x"` does',
    'not match a DNS query, and `!(http.host == "x")` does not either. `&&` is false when one side is, `||` true when one',
    "side is, whatever the other lacks. Only `has(field)` asks for presence, so a rule that must also cover what nobody",
    "stated says `!(has(capsule.confirmed) && capsule.confirmed)`.",
    "",
    "An event without a label is one that nobody labelled, not a clean one: `tainted` does not match it.",
    "",
    "What is there and cannot be computed (text where a number is needed, division by zero) makes the rule block,",
    "whatever its action is. Where both happen in one condition, absence wins.",
    "",
    `All rules together take at most ${steps(POLICY_LIMITS.decisionStepsMax)} steps for one event: about one for each character that a pattern`,
    "looks at, and one for each item of a loop and part of its body. The rule in which they run out blocks, and says so;",
    `those after it are not asked. One pattern has at most ${POLICY_LIMITS.patternProgramMax} instructions, about one for each character or class`,
    `that is written, as often as \`{n}\` repeats it; the patterns of one rule have ${steps(POLICY_LIMITS.patternSizeMax)}, those of all your rules ${steps(POLICY_LIMITS.patternSizesMax)}.`,
    "",
    `Bodies and contents are their first ${kib(POLICY_LIMITS.bodyBytesMax)}, lists their first ${POLICY_LIMITS.itemsMax} items; \`truncated\` of the root says that`,
    `something was cut. Other texts over ${kib(POLICY_LIMITS.textBytesMax)}, maps with over ${POLICY_LIMITS.itemsMax} keys and deeper ones than ${POLICY_LIMITS.jsonDepthMax} are refused with`,
    "the act. Hosts and addresses are compared in one spelling: lower case, without the last dot, IPv4 in four decimals.",
  ];
}

function roots(): string[] {
  return [...new Set(FIELD_PATHS.map((path) => path.slice(0, path.indexOf("."))))];
}

function fieldTable(root: string): string[] {
  const lines = FIELD_PATHS.filter((path) => path.startsWith(`${root}.`)).map((path) => {
    const row = fieldRow(path);
    if (row === undefined) return "";
    const values = row.values === undefined ? "" : `; one of ${row.values.map(code).join(", ")}`;
    return `| ${code(path)} | ${CEL_TYPES[row.kind]} | ${row.doc}${values} | ${fieldArrival(path) ?? NOW} |`;
  });
  return ["| field | type | what | arrives |", "|---|---|---|---|", ...lines];
}

function typeTable(): string[] {
  const postures = PRESET_NAMES.map((preset) => presetLayer(preset).posture);
  const rows = Object.entries(EVENT_TYPES) as [EventType, EventTypeRow][];
  return [
    `| type | when | arrives | carries | must have | ${PRESET_NAMES.join(" | ")} |`,
    `|---|---|---|---|---|${"---|".repeat(PRESET_NAMES.length)}`,
    ...rows.map(([type, { doc, carries, requires, arrives = NOW }]) =>
      [
        `| ${code(type)}`,
        doc,
        arrives,
        carries.map(code).join(", "),
        requires.map(code).join(", "),
        ...postures.map((posture) => posture.get(type) ?? ""),
        "",
      ]
        .join(" | ")
        .trimEnd(),
    ),
    "",
    "The last columns say what happens in a preset where no rule matches.",
  ];
}

function ruleTable(): string[] {
  const sources = Object.entries(RULE_SOURCES) as [RuleSource, (typeof RULE_SOURCES)[RuleSource]][];
  const names: Record<RuleSource, string> = { corp: "corporation", user: "user", builtin: "built in" };
  return [
    "| whose | table | priority | usual |",
    "|---|---|---|---|",
    ...sources.map(
      ([source, { table, least, most, usual }]) =>
        `| ${names[source]} | ${code(`[${table.join(".")}.NAME]`)} | ${least}..${most} | ${usual} |`,
    ),
    "",
    "`action` is `allow`, `ask` or `block`, which decide, or `preprocess`, `rewrite` (also written `redact`, `mutate`,",
    "`neutralize`) or `postprocess`, which change. `match` is the condition. Optional: `name` (as the table's),",
    "`priority`, `reason`, `enabled`, `detection_level` (`none`, `informational`, `low`, `medium`, `high`, `critical`).",
    "",
    ...comingChanges(),
    "The lowest priority decides; within one priority the strictest action; among equals the first id.",
  ];
}

/** What a rule may say and nobody carries out. */
function comingChanges(): string[] {
  const arrivals = [...new Set(CHANGES_TO_COME.values())];
  return arrivals.flatMap((arrival) => {
    const those = [...CHANGES_TO_COME].filter(([, when]) => when === arrival).map(([action]) => code(action));
    const verb = those.length === 1 ? "comes" : "come";
    return [`${those.join(", ")} ${verb} ${arrival}: nobody carries it out yet.`, ""];
  });
}

function settingLine(key: (typeof SETTING_KEYS)[number]): string {
  const row = settingRow(key);
  if (row === undefined) return "";
  const corp = row.isCorpOnly === true ? "; in `corp.toml` only" : "";
  return `| ${code(key)} | ${takes(row.shape)} | ${code(JSON.stringify(row.usual))} | ${row.doc}${corp} |`;
}

function takes(shape: SettingShape): string {
  switch (shape.kind) {
    case "int":
    case "number":
      return `${shape.kind === "int" ? "whole number" : "number"}, ${shape.least} to ${shape.most}`;
    case "flag":
      return "true or false";
    case "choice":
      return shape.of.map(code).join(", ");
    case "texts":
      return `up to ${shape.itemsMax} texts`;
  }
}
