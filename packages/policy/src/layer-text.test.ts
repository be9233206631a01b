import { expect, test } from "vitest";
import { applyEdits, type PolicyEdit } from "./edit.ts";
import { emptyLayer, type PolicyLayer, parseLayer } from "./layer.ts";
import { type PatchedText, patchLayerText, patchSlices, provenText } from "./layer-text.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { ruleJson } from "./rule-json.ts";
import { layerOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";
import { randomEdits, randomLayerLines } from "./testing/random-layer-text.ts";

const corp = emptyLayer("corp");

function patched(text: string, ...edits: PolicyEdit[]): string {
  const result = patchLayerText(text, { corp }, edits);
  if (result.kind === "refused") throw new Error(JSON.stringify(result.faults));
  expect(result.value.keptComments).toBe(true);
  return result.value.text;
}

const set = (key: string, value: unknown): PolicyEdit => ({ kind: "set", key, value });
const reset = (key: string): PolicyEdit => ({ kind: "reset", key });
const put = (name: string, fields: Readonly<Record<string, unknown>>): PolicyEdit => ({
  kind: "put_rule",
  id: `profiles.rules.${name}`,
  fields: { action: "ask", match: "true", ...fields },
});
const remove = (name: string): PolicyEdit => ({ kind: "delete_rule", id: `profiles.rules.${name}` });

const RULE = "action = \"ask\"\nmatch = 'true'\n";

test.each<[string, string, PolicyEdit[], string]>([
  [
    "a value, with its remark",
    "[limits]\nidle_secs =  60 # a minute\n",
    [set("limits.idle_secs", 90)],
    "[limits]\nidle_secs =  90 # a minute\n",
  ],
  [
    "nothing that is said already",
    "[limits]\nidle_secs = 6_0.0\n",
    [set("limits.idle_secs", 60)],
    "[limits]\nidle_secs = 6_0.0\n",
  ],
  [
    "a key more",
    "# top\n\n[limits]\n  idle_secs = 60\n# end\n\n[asks]\n",
    [set("limits.pool_size", 1)],
    "# top\n\n[limits]\n  idle_secs = 60\n  pool_size = 1\n# end\n\n[asks]\n",
  ],
  [
    "a key of an empty section",
    "[limits]\n# none\n[asks]\n",
    [set("limits.pool_size", 1)],
    "[limits]\npool_size = 1\n# none\n[asks]\n",
  ],
  [
    "a section more",
    "# top\n",
    [set("limits.pool_size", 1), set("limits.idle_secs", 5)],
    "# top\n\n[limits]\npool_size = 1\nidle_secs = 5\n",
  ],
  ["a section of an empty file", "", [set("limits.pool_size", 1)], "[limits]\npool_size = 1\n"],
  [
    "a file without a last line break",
    "[limits]\nidle_secs = 60",
    [set("limits.pool_size", 1), set("limits.running_max", 2)],
    "[limits]\nidle_secs = 60\npool_size = 1\nrunning_max = 2",
  ],
  [
    "a section after no last line break",
    "[limits] # x",
    [set("asks.timeout_secs", 1)],
    "[limits] # x\n\n[asks]\ntimeout_secs = 1\n",
  ],
  [
    "lines that end as Windows ends them",
    "[limits]\r\nidle_secs = 60\r\n",
    [set("limits.pool_size", 1), put("a", { match: "true\n|| false\n" })],
    "[limits]\r\nidle_secs = 60\r\npool_size = 1\r\n\r\n[profiles.rules.a]\r\naction = \"ask\"\r\nmatch = '''\r\ntrue\r\n|| false\r\n'''\r\n",
  ],
  [
    "dotted keys",
    "limits.idle_secs = 60\n[asks]\n",
    [set("limits.pool_size", 1)],
    "limits.idle_secs = 60\nlimits.pool_size = 1\n[asks]\n",
  ],
  [
    "an inline table",
    "limits = {idle_secs=60,  running_max = 2} # x\n",
    [set("limits.pool_size", 1), reset("limits.running_max")],
    "limits = { idle_secs=60, pool_size = 1 } # x\n",
  ],
  [
    "an inline table that becomes empty",
    "limits = {idle_secs=60}\n",
    [reset("limits.idle_secs")],
    "limits = {}\n",
  ],
  [
    "quoted keys",
    "[\"limits\"]\n'idle_secs' = 60\n",
    [set("limits.idle_secs", 5)],
    "[\"limits\"]\n'idle_secs' = 5\n",
  ],
  [
    "a list of several lines",
    "[profiles]\nrule_files = [\n  'a', # first\n]\npreset = 'open'\n",
    [set("profiles.rule_files", ["b"])],
    "[profiles]\nrule_files = [\"b\"]\npreset = 'open'\n",
  ],
  [
    "a line that goes, its remark above stays",
    "[limits]\n# why\nidle_secs = 60 # x\npool_size = 1\n",
    [reset("limits.idle_secs")],
    "[limits]\n# why\npool_size = 1\n",
  ],
  [
    "one key of a rule",
    `[profiles.rules.a]\n# first\naction = 'ask' # now\n\nmatch = "true"\n# last\n`,
    [put("a", { action: "block", priority: 20 })],
    `[profiles.rules.a]\n# first\naction = "block" # now\n\nmatch = "true"\npriority = 20\n# last\n`,
  ],
  [
    "a key of a rule that is back to its usual value",
    `[profiles.rules.a]\n${RULE}enabled = false # for now\n`,
    [put("a", {})],
    `[profiles.rules.a]\n${RULE}enabled = true # for now\n`,
  ],
  [
    "an alias of an action that means the same",
    '[profiles.rules.a]\naction = "redact"\nmatch = "true"\n',
    [put("a", { action: "rewrite" })],
    '[profiles.rules.a]\naction = "redact"\nmatch = "true"\n',
  ],
  [
    "a rule more",
    `[profiles.rules.a]\n${RULE}`,
    [put("b", {})],
    `[profiles.rules.a]\n${RULE}\n[profiles.rules.b]\n${RULE}`,
  ],
  [
    "a rule less, with the remarks that are about it",
    `# top\n\n# about a\n# more\n[profiles.rules.a]\n${RULE}# end of a\n\n# about b\n[profiles.rules.b]\n${RULE}`,
    [remove("a")],
    `# top\n\n# about b\n[profiles.rules.b]\n${RULE}`,
  ],
  [
    "the last rule",
    `[limits]\nidle_secs = 60\n\n[profiles.rules.a]\n${RULE}`,
    [remove("a")],
    "[limits]\nidle_secs = 60\n",
  ],
  ["all rules", `[profiles.rules.a]\n${RULE}\n\n[profiles.rules.b]\n${RULE}`, [remove("a"), remove("b")], ""],
  [
    "a rule whose neighbour ends like a comment",
    `[profiles.rules.a]\naction = "ask"\nmatch = '''\nprocess.command == """\n# x"""'''\n[profiles.rules.b]\n${RULE}`,
    [remove("b")],
    `[profiles.rules.a]\naction = "ask"\nmatch = '''\nprocess.command == """\n# x"""'''\n`,
  ],
  [
    "a rule in dotted keys",
    '[profiles.rules]\na.action = "ask"\na.match = "true"\nb = { action = "ask", match = "true" }\n',
    [put("a", { reason: "x" }), put("b", { priority: 11 }), put("c", {})],
    `[profiles.rules]\na.action = "ask"\na.match = "true"\na.reason = "x"\nb = { action = "ask", match = "true", priority = 11 }\n\n[profiles.rules.c]\n${RULE}`,
  ],
  [
    "rules below what can take nothing more",
    'profiles = { preset = "open" }\n',
    [put("a", {})],
    `profiles = { preset = "open", rules.a = { action = "ask", match = 'true' } }\n`,
  ],
  [
    "a rule in an inline table in an inline table",
    'profiles = { rules = { a = { action = "ask", match = "true" }, b = { action = "ask", match = "true" } } }\n',
    [remove("a"), put("b", { action: "block" })],
    'profiles = { rules = { b = { action = "block", match = "true" } } }\n',
  ],
  [
    "a section that was there only by what goes",
    "limits.idle_secs = 60\n",
    [reset("limits.idle_secs"), set("limits.pool_size", 1)],
    "[limits]\npool_size = 1\n",
  ],
  [
    "a table above one that has a header",
    `[profiles.rules.a]\n${RULE}`,
    [set("profiles.preset", "open")],
    `[profiles.rules.a]\n${RULE}\n[profiles]\npreset = "open"\n`,
  ],
  [
    "a rule that goes and comes in one batch",
    `# top\n[profiles.rules.a]\n${RULE}`,
    [remove("a"), put("a", { action: "block" })],
    `# top\n[profiles.rules.a]\naction = "block"\nmatch = 'true'\n`,
  ],
  [
    "what comes and goes in one batch",
    "# top\n",
    [put("a", {}), remove("a"), set("limits.pool_size", 1), reset("limits.pool_size")],
    "# top\n",
  ],
])("an edit changes %s, and no other byte", (_, text, edits, expected) => {
  expect(patched(text, ...edits)).toBe(expected);
});

test("a rule that is added and deleted again leaves the file as it was", () => {
  const text = "# top\n[limits]\nidle_secs = 60\n";
  expect(patched(patched(text, put("a", {})), remove("a"))).toBe(text);
});

test.each<[string, string, PolicyEdit[], string]>([
  ["a text that is no layer", "[limits]\nidle_secs = 'x'\n", [], "bad_value"],
  ["a text that is no TOML", "[limits", [], "syntax"],
  ["an edit that is refused", "", [set("limits.idle", 1)], "unknown_key"],
])("%s is refused as it is without a text", (_, text, edits, code) => {
  expect(patchLayerText(text, { corp }, edits)).toMatchObject({ kind: "refused", faults: [{ code }] });
});

test("what the corporation set, and rules of other files, are not changed in the text either", () => {
  const layers = {
    corp: layerOf("corp", "[limits]\npool_size = 1\n"),
    elsewhere: new Set(["profiles.rules.a"]),
  };
  for (const edit of [set("limits.pool_size", 2), put("a", {})]) {
    expect(patchLayerText("", layers, [edit])).toMatchObject({ faults: [{ code: "locked" }] });
  }
});

test("a text that would say something else is not taken: the file is written anew, and the result says so", () => {
  const wanted = layerOf("user", `# lost\n[limits]\nidle_secs = 60\n[profiles.rules.a]\n${RULE}`);
  for (const candidate of [
    "[limits",
    "[limits]\nidle_secs = 60\n",
    `[limits]\nidle_secs = 61\n[profiles.rules.a]\n${RULE}`,
  ]) {
    const proven = provenText(candidate, wanted);
    if (proven.kind === "refused") throw new Error(JSON.stringify(proven.faults));
    expect(proven.value.keptComments).toBe(false);
    expect(proven.value.text).toBe(`[limits]\nidle_secs = 60\n\n[profiles.rules.a]\n${RULE}`);
    expect(plain(proven.value.layer)).toEqual(plain(wanted));
  }
});

test("a file that would be too large to read again is refused", () => {
  const rules = Array.from({ length: 70 }, (_, n) => put(`r${n}`, { match: `true${" ".repeat(4_000)}` }));
  const text = `#${"x".repeat(POLICY_LIMITS.fileBytesMax - 10)}\n`;
  expect(patchLayerText("", { corp }, rules)).toMatchObject({ faults: [{ code: "too_large" }] });
  // With less to say, the remarks are what is too large, and they go.
  const result = patchLayerText(text, { corp }, [put("a", {})]);
  expect(result).toMatchObject({ kind: "ok", value: { keptComments: false } });
});

function plain(layer: PolicyLayer) {
  const rules = layer.rules.map((rule) => ({ ...ruleJson(rule), line: undefined }));
  return { settings: layer.settings, rules: new Map(rules.map((rule) => [rule.id, rule])) };
}

test("random files and edits: the text says what the edits say, and every other line stays, in order", () => {
  const random = new Random(61);
  let changed = 0;
  for (let round = 0; round < 3_000; round += 1) {
    const lines = randomLayerLines(random);
    const eol = random.pick(["\n", "\r\n"]);
    const text = lines.map((line) => line.text).join(eol) + random.pick(["", eol]);
    const user = parseLayer("user", text);
    if (user.kind === "refused") continue;
    const edits = randomEdits(random);
    const wanted = applyEdits({ user: user.value, corp }, edits);
    const result = patchLayerText(text, { corp }, edits);
    expect(result.kind).toBe(wanted.kind);
    if (result.kind === "refused" || wanted.kind === "refused") continue;
    const seen = `${text}\n-----\n${JSON.stringify(edits)}\n-----\n${result.value.text}`;
    expect(result.value.keptComments, seen).toBe(true);
    expect(plain(result.value.layer), seen).toEqual(plain(wanted.value));
    const touched = edits.map((edit) => ("key" in edit ? edit.key : edit.id));
    const isTouched = (about: string) => touched.some((id) => id === about || id.startsWith(`${about}.`));
    const kept = lines.filter((line) => line.text.trim() !== "" && !line.about.some(isTouched));
    expect(
      missingLine(
        kept.map((line) => line.text),
        result.value.text.split(/\r?\n/),
      ),
      seen,
    ).toBeUndefined();
    if (edits.length === 0) expect(result.value.text).toBe(text);
    if (result.value.text !== text) changed += 1;
    expect(result.value.text.includes("\r\n") && /[^\r]\n/.test(result.value.text), seen).toBe(false);
  }
  expect(changed).toBeGreaterThan(1_000);
});

/** The first of `lines` that is not in `all` in its place. */
function missingLine(lines: readonly string[], all: readonly string[]): string | undefined {
  let at = 0;
  for (const line of lines) {
    at = all.indexOf(line, at) + 1;
    if (at === 0) return line;
  }
  return undefined;
}

/** As who makes one edit after another: with what the last one found out. */
function patchedOf(text: string, user: PolicyLayer, edits: readonly PolicyEdit[]): PatchedText {
  for (const slices = patchSlices(text, { user, corp }, edits); ; ) {
    const slice = slices.next();
    if (slice.done !== true) continue;
    if (slice.value.kind === "refused") throw new Error(JSON.stringify(slice.value.faults));
    return slice.value.value;
  }
}

test("an edit after another makes of its text what it would by itself", () => {
  let text = "# mine\n[limits]\nidle_secs = 60 # a minute\n";
  let layer = layerOf("user", text);
  const edits: PolicyEdit[] = [
    put("one", { reason: "first" }),
    put("two", { match: 'vm.name == "a"' }),
    set("limits.idle_secs", 90),
    put("one", { reason: "a longer one\u00e4" }),
    set("limits.running_max", 3),
    remove("two"),
    reset("limits.idle_secs"),
    put("three", {}),
  ];
  for (const edit of edits) {
    const wanted = patched(text, edit);
    const made = patchedOf(text, layer, [edit]);
    expect(made.text).toBe(wanted);
    expect(made.layer).toEqual(layerOf("user", wanted));
    // Somebody adds lines by hand, with the same meaning: nothing stands any more where it stood.
    const longer = `# theirs\n\n${made.text}`;
    const more = set("limits.pool_size", 4);
    expect(patchedOf(longer, made.layer, [more]).text).toBe(patched(longer, more));
    ({ text, layer } = made);
  }
});
