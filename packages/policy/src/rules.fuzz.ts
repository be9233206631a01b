/** A seeded fuzzer of rule files, expressions and batches. Throws with what it found and the input. */
import { assert } from "@capsem/base";
import { compileCondition, isCondition } from "./cel/condition.ts";
import { NoValue } from "./cel/outcome.ts";
import { applyEdits, type PolicyEdit } from "./edit.ts";
import { EVENT_TYPE_NAMES } from "./event/event-table.ts";
import { FAULT_CODES, type PolicyFault } from "./fault.ts";
import { emptyLayer, parseLayer } from "./layer.ts";
import { patchLayerText } from "./layer-text.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { PRESETS } from "./preset-table.ts";
import { renderLayer } from "./render.ts";
import { RULE_SOURCES, type RuleSource } from "./rule.ts";
import { Random } from "./testing/random.ts";
import { randomCondition } from "./testing/random-condition.ts";
import { randomEvent } from "./testing/random-event.ts";
import { randomEdits } from "./testing/random-layer-text.ts";

/** Pieces that parsers trip over, between whole rules. */
const PIECES = [
  '[profiles.rules.a]\naction = "block"\nmatch = "true"\n',
  "[corp.rules.b]\n",
  "[default.c]\n",
  "[[profiles.rules]]\n",
  "[profiles.rules.__proto__]\n",
  "[limits]\nidle_secs = 1\n",
  "limits.running_max = 4\n",
  'match = """',
  "'''",
  'action = "allow"\n',
  "priority = -9223372036854775808\n",
  "priority = 1e400\n",
  "reason = 1979-05-27T07:32:00Z\n",
  'a = { b = { c = ["',
  "[[[[",
  "= = =",
  "\u0000\u007f\u0080",
  "é💥\ud800",
  "\r\n",
  "#",
  '\\u0041\\U0010FFFF\\q"',
  "inf nan 0x_1",
] as const;

const TOKENS = [
  "http.host",
  "http.hst",
  "label",
  "mcp.request.arguments.x",
  "vm.labels",
  "has(",
  "tainted(label, ",
  "cidr(",
  ".exists(a, ",
  ".matches(",
  '"((a+)+)+$"',
  "'10.0.0.0/8'",
  "&&",
  "||",
  "!",
  "? :",
  "==",
  "in",
  "[",
  "]",
  ")",
  "{",
  "1u",
  "-9223372036854775809",
  "1e999",
  "null",
  'b"x"',
  "constructor",
  "__proto__",
  "\u0000",
  "💥",
  "// x\n",
] as const;

export function fuzz(seed: number, rounds: number): void {
  for (let round = 0; round < rounds; round += 1) {
    const random = new Random(seed + round);
    fuzzFile(random);
    fuzzExpression(random);
    fuzzEdits(random);
  }
}

function mutated(random: Random, text: string): string {
  let result = text;
  for (let count = random.below(6); count > 0; count -= 1) {
    const at = random.below(result.length + 1);
    const end = at + (random.chance(2) ? 0 : random.below(20));
    const piece = random.chance(3) ? String.fromCharCode(random.below(0x250)) : random.pick(PIECES);
    result = result.slice(0, at) + piece + result.slice(end);
  }
  return result;
}

/** Any text is a layer, or is refused with faults that stand inside it. */
function fuzzFile(random: Random): void {
  const sources = Object.keys(RULE_SOURCES) as RuleSource[];
  const source = random.pick(sources);
  const base = random.pick([
    PRESETS[random.pick(["developer", "open"] as const)],
    PRESETS.developer.replaceAll("[default.", "[profiles.rules."),
    `[profiles.rules.x]\naction = "ask"\nmatch = '''${randomCondition(random)}'''\n`,
    Array.from({ length: random.below(8) }, () => random.pick(PIECES)).join(""),
  ]);
  const text = mutated(random, base);
  const parsed = parseLayer(source, text);
  if (parsed.kind === "refused") checkFaults(parsed.faults, text, text.split("\n"));
  else {
    const again = parseLayer(source, renderLayer({ ...parsed.value, posture: new Map() }));
    assert(again.kind === "ok", `what was read cannot be written and read again: ${JSON.stringify(text)}`);
    assert(
      again.value.rules.length === parsed.value.rules.length,
      `rules were lost: ${JSON.stringify(text)}`,
    );
    if (source === "user") fuzzPatch(random, text);
  }
}

/** Whatever a layer's text looks like, edits keep what they are not about. */
function fuzzPatch(random: Random, text: string): void {
  const edits = randomEdits(random);
  const patched = patchLayerText(text, { corp: emptyLayer("corp") }, edits);
  if (patched.kind === "refused") checkFaults(patched.faults, JSON.stringify(edits), []);
  else
    assert(
      patched.value.keptComments,
      `${JSON.stringify(text)} lost its comments by ${JSON.stringify(edits)}`,
    );
}

function checkFaults(faults: readonly PolicyFault[], input: string, lines: readonly string[]): void {
  assert(faults.length > 0 && faults.length <= POLICY_LIMITS.faultsMax, `${faults.length} faults: ${input}`);
  for (const { code, message, at } of faults) {
    assert(FAULT_CODES.includes(code) && message.length > 0, `fault ${code} of ${JSON.stringify(input)}`);
    if (at === undefined) continue;
    const line = lines[at.line - 1];
    assert(
      line !== undefined && at.column >= 1 && at.column <= line.length + 1,
      `fault ${code} stands at ${at.line}:${at.column}, outside of ${JSON.stringify(input)}`,
    );
  }
}

/** Any expression compiles or is refused at a place inside it; what compiles never throws. */
function fuzzExpression(random: Random): void {
  const source = random.chance(2)
    ? Array.from({ length: 1 + random.below(12) }, () => random.pick(TOKENS)).join(random.pick(["", " "]))
    : mutated(random, randomCondition(random));
  const compiled = compileCondition(source);
  if (!isCondition(compiled)) {
    const { offset } = compiled;
    assert(offset >= 0 && offset <= source.length, `fault at ${offset} of ${JSON.stringify(source)}`);
    return;
  }
  assert(compiled.cost <= POLICY_LIMITS.costMax, `cost ${compiled.cost} of ${JSON.stringify(source)}`);
  const outcome = compiled.evaluate(randomEvent(random, random.pick(EVENT_TYPE_NAMES)).facts);
  assert(
    typeof outcome === "boolean" || outcome instanceof NoValue,
    `${JSON.stringify(source)} gives ${typeof outcome}`,
  );
}

/** Any batch gives a layer that can be written and read again, or faults. */
function fuzzEdits(random: Random): void {
  const value = () => random.pick([1, -1, 0.5, "x", "true", true, null, [], ["x"], {}, Number.NaN]);
  const key = () =>
    random.pick(["limits.idle_secs", "profiles.preset", "asks.timeout_secs", "__proto__", ""]);
  const id = () =>
    random.pick(["profiles.rules.a", "profiles.rules.A", "corp.rules.a", "", "profiles.rules.a.b"]);
  const edits = Array.from({ length: random.below(5) }, (): PolicyEdit => {
    switch (random.below(4)) {
      case 0:
        return { kind: "set", key: key(), value: value() };
      case 1:
        return { kind: "reset", key: key() };
      case 2:
        return { kind: "delete_rule", id: id() };
      default:
        return {
          kind: "put_rule",
          id: id(),
          fields: {
            action: random.pick(["ask", "x", 1]),
            match: random.chance(3) ? value() : "true",
            reason: value(),
          },
        };
    }
  });
  const edited = applyEdits({ user: emptyLayer("user"), corp: emptyLayer("corp") }, edits);
  if (edited.kind === "refused") checkFaults(edited.faults, JSON.stringify(edits), []);
  else assert(parseLayer("user", renderLayer(edited.value)).kind === "ok", JSON.stringify(edits));
}
