import type { Changed, LintFindingInfo, RuleInfo, RuleList } from "@capsem/api";
import type { Args } from "../args.ts";
import { usageError } from "../cli-error.ts";
import type { Context, Handler } from "../context.ts";
import { POLICY_TEXT_BYTES_MAX } from "../limits.ts";
import { colorOf, paintOf } from "../paint.ts";
import { type Cell, counted, renderTable } from "../render.ts";
import { type NamedRule, readRules } from "../rule-file.ts";
import { readText } from "../text-input.ts";
import { wrap } from "../wrap.ts";

/** As the linter advises. */
const ASK_PRIORITY = 20;

export const list: Handler = async (context, args) => {
  const { client, output, powers, json } = context;
  const found = await (await client()).rules.list();
  if (json) await output.json(found);
  else if (args.flag("names"))
    await output.print(
      found.rules.flatMap(({ source, name }) => (source === "user" ? `${name}\n` : "")).join(""),
    );
  else {
    const columns = powers.stdout.size()?.cols;
    const shown = args.flag("all") ? found.rules : found.rules.filter(({ source }) => source !== "builtin");
    for (const line of wrap(headOf(found), columns ?? Number.POSITIVE_INFINITY)) await output.line(line);
    const rows = shown.map(rowOf);
    if (rows.length > 0) {
      const head = ["PRIORITY", "ACTION", "RULE", "MATCH", "REASON"];
      const table = renderTable(head, rows, columns, paintOf(powers), ["MATCH", "REASON", "RULE"]);
      await output.print(`\n${table}`);
    }
    await output.print(`\n${postureText(found.posture, columns)}`);
    const hidden = found.rules.length - shown.length;
    if (hidden > 0) await output.line(`before that ${counted(hidden, "built-in rule")}: --all shows more`);
    await tellFindings(context, found.findings);
    await tellFaults(context);
  }
  return 0;
};

/** What is listed is in force; where a file was changed and cannot be used, it is not what the file says. */
async function tellFaults({ client, output }: Context): Promise<void> {
  const service = await client();
  const [settings, corp] = await Promise.all([service.settings.info(), service.corp.info()]);
  const faults = [...settings.faults, ...corp.faults];
  if (faults.length === 0) return;
  const { faultLine } = await import("../error-text.ts");
  for (const line of new Set(faults.map((fault) => faultLine(fault)))) await output.say(line);
  await output.say("what was in force before still is: mend the file, then capsem corp reload");
}

function headOf({ preset, rules, digest }: RuleList): string {
  const count = (source: RuleInfo["source"]) => rules.filter((rule) => rule.source === source).length;
  const corp = count("corp") === 0 ? "" : `${count("corp")} of the corporation's, `;
  return `preset ${preset}: ${corp}${count("user")} of yours, ${count("builtin")} built in; digest ${digest.slice(0, 12)}`;
}

function rowOf(rule: RuleInfo): Cell[] {
  const action = rule.enabled ? rule.action : `${rule.action} (off)`;
  const detection = rule.detection_level === "none" ? "" : ` [${rule.detection_level}]`;
  return [
    String(rule.priority),
    { text: action, color: rule.enabled ? colorOf(rule.action) : "dim" },
    rule.id,
    rule.match.replace(/\s+/g, " "),
    `${rule.reason}${detection}`,
  ];
}

function postureText(posture: RuleList["posture"], columns = Number.POSITIVE_INFINITY): string {
  const of = (action: string) =>
    Object.entries(posture).flatMap(([type, each]) => (each === action ? [type] : []));
  const lines = ["block", "ask", "allow"].flatMap((action) => {
    const types = of(action);
    return types.length === 0 ? [] : wrap(`  ${action}: ${types.sort().join(", ")}`, columns, 4);
  });
  return ["where no rule matches:", ...lines, ""].join("\n");
}

/** One after another: what was written before one that is refused holds, and is said. */
export const put: Handler = async (context, args) => {
  const rules = await rulesOf(context, args);
  const client = await context.client();
  const before = new Set((await client.rules.list()).rules.map(({ id }) => id));
  const written: { readonly id: string; readonly replaced: boolean }[] = [];
  let changed: Changed | null = null;
  for (const { name, fields } of rules) {
    const id = idOf(name);
    changed = await client.rules.put(name, fields);
    written.push({ id, replaced: before.has(id) });
    if (context.json) continue;
    const how = before.has(id) ? "is replaced, and" : fields.enabled === false ? "is written, and" : "";
    await context.output.line(
      [id, how, fields.enabled === false ? "off" : "holds"].filter(Boolean).join(" "),
    );
  }
  if (context.json) await context.output.json({ ...changed, rules: written });
  else await tellFindings(context, changed?.findings ?? []);
  return 0;
};

export const remove: Handler = async (context, args) => {
  const name = args.word(0);
  const changed = await (await context.client()).rules.delete(name);
  if (context.json) await context.output.json(changed);
  else {
    await context.output.line(`${idOf(name)} is gone`);
    await tellFindings(context, changed.findings);
  }
  return 0;
};

export const lint: Handler = async ({ client, output, powers, json }, args) => {
  const file = args.words[0];
  const text = file === undefined ? undefined : await readText(powers, file, POLICY_TEXT_BYTES_MAX);
  const found = await (await client()).rules.lint(text);
  const isBad = found.faults.length > 0;
  if (json) await output.json(found);
  else {
    const { faultLine } = await import("../error-text.ts");
    const name = file === undefined || file === "-" ? null : file;
    for (const fault of found.faults) await output.line(faultLine(fault, name ?? fault.file));
    for (const each of found.findings) await output.line(findingLine(each));
    if (!isBad && found.findings.length === 0) await output.line(`${counted(found.rules, "rule")}, no fault`);
  }
  return isBad ? 1 : 0;
};

export async function tellFindings({ output }: Context, findings: readonly LintFindingInfo[]): Promise<void> {
  for (const each of findings) await output.say(findingLine(each));
}

function findingLine({ kind, message, line }: LintFindingInfo): string {
  return `${kind}${line === null ? "" : `, line ${line}`}: ${message}`;
}

function idOf(name: string): string {
  return name.includes(".") ? name : `profiles.rules.${name}`;
}

async function rulesOf({ powers }: Context, args: Args): Promise<NamedRule[]> {
  const file = args.text("file");
  const name = args.words[0];
  if (file !== undefined) {
    if (["match", "action", "reason", "priority", "detection", "disabled"].some((each) => args.flag(each)))
      throw usageError("Cannot use --file beside what it says itself: give the rule in one way");
    return readRules(await readText(powers, file, POLICY_TEXT_BYTES_MAX), name);
  }
  const [match, action, reason, detection] = ["match", "action", "reason", "detection"].map((each) =>
    args.text(each),
  );
  if (name === undefined || match === undefined || action === undefined)
    throw usageError("Cannot use rules put: a name, --match and --action are needed, or --file");
  // Before a rule that asks there must be room for the one that an approval for always writes.
  const priority = args.number("priority", 10, 1_000, 1) ?? (action === "ask" ? ASK_PRIORITY : undefined);
  const fields = {
    ...{ match, action },
    ...(reason === undefined ? {} : { reason }),
    ...(detection === undefined ? {} : { detection_level: detection }),
    ...(priority === undefined ? {} : { priority }),
    ...(args.flag("disabled") ? { enabled: false } : {}),
  };
  return [{ name, fields }];
}
