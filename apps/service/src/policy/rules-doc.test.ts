import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ENDS_IN } from "@capsem/api";
import {
  allowRuleFor,
  applyEdits,
  compileSnapshot,
  EVENT_TYPE_NAMES,
  type EventFields,
  type EventType,
  emptyLayer,
  FIELDS,
  type FieldPath,
  fieldArrival,
  isEventType,
  lintRules,
  type PolicyEdit,
  type PolicySnapshot,
  PRESET_NAMES,
  parseLayer,
  SETTINGS,
  typeArrival,
} from "@capsem/policy";
import { expect, test } from "vitest";
import { POLICY_COMMANDS } from "../../../cli/src/policy-command-table.ts";
import { judge } from "../boundary/judgement.ts";
import { dryRun } from "./dry-run.ts";
import { findingInfos } from "./infos.ts";
import { PolicyChanges } from "./policy-changes.ts";
import { sha256 } from "./policy-state.ts";
import { CONTEXT, fakeBoundary, refusal, type TempPolicy, useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();

const page = readFileSync(join(import.meta.dirname, "../../../../docs/rules.md"), "utf8");

/** The page by its headings of any level. */
const sections = page
  .split(/^#{1,3} /m)
  .slice(1)
  .map((text) => {
    const end = text.indexOf("\n");
    return { title: text.slice(0, end), text: text.slice(end) };
  });

function section(title: string): string {
  const found = sections.find((each) => each.title === title);
  if (found === undefined) throw new Error(`docs/rules.md has no section "${title}"`);
  return found.text;
}

function blocks(text: string, language: string): string[] {
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, "gm"))].map(
    ([, block = ""]) => block,
  );
}

/** The rules of a block of the page, and the default preset. */
function snapshotOf(toml: string): PolicySnapshot {
  const source = toml.includes("[corp.") ? "corp" : "user";
  const parsed = parseLayer(source, toml);
  if (parsed.kind === "refused") throw new Error(JSON.stringify(parsed.faults));
  return compileSnapshot({ [source]: parsed.value }, sha256);
}

interface ActRow {
  readonly type: EventType;
  readonly fields: EventFields;
  readonly becomes: string;
}

/** `type`: `field` = `value`, … | what becomes of it */
function actRows(text: string): ActRow[] {
  const [, table = ""] = /^\| act \| becomes \|\n\|.*\n((?:\|.*\n)+)/m.exec(text) ?? [];
  return table
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const cells = line
        .replaceAll("\\|", "\u0000")
        .split("|")
        .map((cell) => cell.replaceAll("\u0000", "|").trim());
      const [, act = "", becomes = ""] = cells;
      const type = /^`([^`]+)`:/.exec(act)?.[1];
      const pairs = [...act.matchAll(/`([^`]+)` = `([^`]*)`/g)];
      const fields = pairs.map(([, name = "", value = ""]) => [name, typed(name, value)]);
      return { type: type as EventType, fields: Object.fromEntries(fields) as EventFields, becomes };
    });
}

function typed(path: string, value: string): unknown {
  switch (FIELDS[path as FieldPath]?.kind) {
    case "int":
      return Number(value);
    case "bool":
      return value === "true";
    case "json":
      return JSON.parse(value);
    default:
      return value;
  }
}

/** What becomes of it, with its detection where the page speaks of one. */
function becomes(snapshot: PolicySnapshot, { type, fields, becomes: said }: ActRow): string {
  const draft = { type, vm: null, fields };
  const { decision, event } = judge({ snapshot: () => snapshot }, { event_id: "000000000000" }, draft);
  if (event === null) throw new Error(decision.reason);
  return said.includes("detection") ? `${decision.action}, detection ${decision.detection}` : decision.action;
}

const recipes = sections.filter(({ text }) => text.includes("| act | becomes |"));

test("there are more than ten recipes, and every rule on the page stands in one or is shown for its faults", () => {
  expect(recipes.length).toBeGreaterThan(10);
  for (const toml of blocks(page, "toml")) expect(() => snapshotOf(toml)).not.toThrow();
});

test.each(recipes)("recipe: $title", ({ text }) => {
  const [toml = ""] = blocks(text, "toml");
  const snapshot = snapshotOf(toml);
  const rows = actRows(text);
  for (const row of rows) expect([row, becomes(snapshot, row)]).toEqual([row, row.becomes]);
  // A table in which nothing differs would show nothing; without the rules every act is allowed.
  expect(new Set(rows.map((row) => row.becomes)).size).toBeGreaterThan(1);
  for (const row of rows) expect(becomes(snapshotOf(""), row)).toMatch(/^allow(, detection none)?$/);
});

test("no recipe has a finding of the linter", () => {
  for (const { text } of recipes) {
    const findings = lintRules(snapshotOf(blocks(text, "toml")[0] ?? "").rules);
    expect(findings.filter(({ rule_id }) => !rule_id.startsWith("default."))).toEqual([]);
  }
});

test("what the page says that a dry run prints is what it prints", () => {
  const [first = ""] = blocks(page, "toml");
  const [printed = ""] = blocks(section("Try it before it holds"), "text");
  const vm = { id: "vm_aaaaaaaaaaaaaaaa", name: "build", image: null };
  const event = { type: "process.exec", fields: { "process.command": "git push --force" } };
  expect(`${dryRun(snapshotOf(first), event, vm, () => null).text}\n`).toBe(printed);
});

test("what the page says that the linter prints is what it prints", () => {
  const text = section("Try it before it holds");
  const snapshot = snapshotOf(blocks(text, "toml")[0] ?? "");
  const printed = findingInfos(lintRules(snapshot.rules)).map(
    ({ kind, line, message }) => `${kind}, line ${line}: ${message}\n`,
  );
  expect(printed.join("")).toBe(blocks(text, "text")[1]);
});

test("the rule that guards the settings holds against whoever would take it away, in any company", async () => {
  const set = (key: string, value: unknown) => ({ kind: "set", key, value }) as const;
  const [asking = ""] = blocks(section("Guard the settings, and the rules themselves"), "toml");
  // The stand-in of the boundary has nobody to ask.
  const guard = asking.replace('action = "ask"', 'action = "block"');
  const attacks: readonly (readonly PolicyEdit[])[] = [
    [set("profiles.rule_files", []), set("profiles.preset", "open")],
    [set("profiles.preset", "open"), set("limits.idle_secs", 5)],
    [{ kind: "reset", key: "profiles.rule_files" }],
    [set("asks.unattended_secs", 1)],
    [set("ledger.retention_days", 1)],
    [set("limits.idle_secs", 5), set("confinement.allow_unconfined", true)],
    [{ kind: "put_rule", id: "profiles.rules.mine", fields: { action: "allow", match: "true" } }],
  ];
  const settings = '[profiles]\nrule_files = ["guard.toml"]\n';
  for (const edits of attacks) {
    const open = temp({ "settings.toml": settings, "guard.toml": "" });
    await (await changes(open)).edit(CONTEXT, edits);
    expect(open.read("settings.toml")).not.toBe(settings);
    const rig = temp({ "settings.toml": settings, "guard.toml": guard });
    const guarded = await changes(rig);
    expect(await refusal(guarded.edit(CONTEXT, edits))).toMatchObject({ kind: "policy" });
    expect(rig.read("settings.toml")).toBe(settings);
    await guarded.edit(CONTEXT, [set("limits.idle_secs", 5)]);
  }
});

async function changes(rig: TempPolicy): Promise<PolicyChanges> {
  const store = await rig.open();
  return new PolicyChanges(store, fakeBoundary(store).boundary);
}

test("what the tables call to come is what the service does not make", () => {
  const types = new Set<string>();
  const fields = new Set<string>();
  const folders = ["../..", "../../../proxy"].map((folder) => join(import.meta.dirname, folder, "src"));
  const paths = folders.flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: "utf8" }).map((path) => join(folder, path)),
  );
  for (const path of paths) {
    if (!path.endsWith(".ts") || /\.(test|fuzz)\.ts$|testing\//.test(path)) continue;
    const text = readFileSync(path, "utf8");
    for (const [, type = ""] of text.matchAll(/(?:\btype: |(?="mcp\.))"([a-z_.]+)"/g))
      if (isEventType(type)) types.add(type);
    for (const [, name = ""] of text.matchAll(/"([a-z_.]+)":/g))
      if (Object.hasOwn(FIELDS, name)) fields.add(name);
  }
  // These are not written beside `type:`.
  for (const type of ["file.import", "file.export", "file.event"]) types.add(type);
  const made = EVENT_TYPE_NAMES.filter((type) => typeArrival(type) === undefined);
  expect([...types].sort()).toEqual([...made].sort());
  // What is judged in the course of an act that has its end elsewhere.
  const within = ["process.exec_complete", "mcp.event", "mcp.tool_list", "mcp.tool_result"];
  expect([...Object.keys(ENDS_IN), ...within].sort()).toEqual([...made].sort());
  expect(fields.size).toBeGreaterThan(15);
  expect([...fields].filter((path) => fieldArrival(path) !== undefined)).toEqual([]);
});

test("the command that slips by a rule does slip by", () => {
  const [, hidden = ""] = /`(sh -c [^`]+)`/.exec(section("What a rule about commands cannot do")) ?? [];
  const [toml = ""] = blocks(section("Block a command in one VM"), "toml");
  const row = { type: "process.exec", becomes: "allow" } as const;
  expect(
    becomes(snapshotOf(toml), { ...row, fields: { "vm.name": "build", "process.command": hidden } }),
  ).toBe("allow");
  expect(hidden).toContain(Buffer.from("curl").toString("base64"));
});

test("the table of presets is what the presets say", () => {
  const text = section("Presets");
  const rows = [...text.matchAll(/^\| `([a-z._]+)`, [^|]*\| (\w+) \| (\w+) \| (\w+) \|$/gm)];
  expect(rows.length).toBeGreaterThan(7);
  expect(text).toContain(`| ${PRESET_NAMES.join(" | ")} |`);
  for (const [index, preset] of PRESET_NAMES.entries()) {
    const layer = parseLayer("user", `[profiles]\npreset = "${preset}"`);
    if (layer.kind === "refused") throw new Error("no such preset");
    const { posture } = compileSnapshot({ user: layer.value }, sha256);
    for (const [, type = "", ...actions] of rows) {
      expect([type, preset, actions[index]]).toEqual([type, preset, posture.get(type as EventType)]);
    }
  }
});

test("the numbers of the page are those of the settings", () => {
  const text = section("Asks");
  expect(text).toContain(`asks.unattended_secs\` (${SETTINGS["asks.unattended_secs"].usual} seconds)`);
  expect(text).toContain(`asks.timeout_secs\` (${SETTINGS["asks.timeout_secs"].usual})`);
});

test("where an approval for always holds is what the page says", () => {
  const snapshot = snapshotOf(blocks(page, "toml")[0] ?? "");
  const draftIn = (id: string, name: string) => ({
    ...{ type: "process.exec" as const, vm: { id, name, image: null } },
    fields: { "process.command": "git push --force" },
  });
  const judged = (rules: PolicySnapshot, draft: ReturnType<typeof draftIn>) =>
    judge({ snapshot: () => rules }, { event_id: "000000000000" }, draft);
  const approved = draftIn("vm_aaaaaaaaaaaaaaaa", "one");
  const { event, decision } = judged(snapshot, approved);
  const rule = event === null ? null : allowRuleFor(event, decision, sha256);
  if (rule?.kind !== "edit") throw new Error("it cannot be approved for always");
  const user = parseLayer("user", blocks(page, "toml")[0] ?? "");
  if (user.kind === "refused") throw new Error("the page is wrong");
  const edited = applyEdits({ user: user.value, corp: emptyLayer("corp") }, [rule.edit]);
  if (edited.kind === "refused") throw new Error("the rule cannot be written");
  const after = compileSnapshot({ user: edited.value }, sha256);
  const elsewhere = judged(after, draftIn("vm_bbbbbbbbbbbbbbbb", "other")).decision.action;
  expect(judged(after, approved).decision.action).toBe("allow");
  expect(section("Asks")).toContain(
    elsewhere === "allow" ? "exactly this, in every VM" : "exactly this, of this VM alone",
  );
});

test("every command of both pages is one", () => {
  const settings = readFileSync(join(import.meta.dirname, "../../../../docs/settings.md"), "utf8");
  const named = [...`${page}${settings}`.matchAll(/capsem ((?:rules|settings|corp|asks) [a-z]+)/g)].map(
    ([, name = ""]) => name,
  );
  expect(new Set(named).size).toBeGreaterThan(10);
  const known = POLICY_COMMANDS.map(({ name }) => name);
  for (const name of named) expect(known).toContain(name);
});
