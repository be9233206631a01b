/** Seeded fuzzers of everything that reads JSON text. Each throws with what it found. */
import { assert, Failure } from "@capsem/base";
import { canonicalDefinition } from "./definition.ts";
import { kindOf, readEnvelope } from "./envelope.ts";
import { itemsOf, membersOf, withMember, withoutMember } from "./raw-members.ts";
import { checkEnd, eachMember, skipSpace, skipValue } from "./scan.ts";
import { shortened } from "./shortened.ts";
import { strictJson } from "./strict-json.ts";

type Random = (below: number) => number;

/** mulberry32: a small generator whose whole state is its seed. */
export function randomOf(seed: number): Random {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

export function fuzz(seed: number, rounds: number): void {
  const random = randomOf(seed);
  for (let round = 0; round < rounds; round += 1) {
    const text = valueText(random, 5);
    sameAsParse(text);
    sameAsParse(mutated(random, text));
    membersAsParse(random, objectText(random, 4, true));
    const object = objectText(random, 4, true);
    shortenedHasAll(object, random(12));
    shortenedHidesNothing(mutated(random, object), random(12));
    envelopeAsParse(random);
    readersThrowFailures(mutated(random, mutated(random, objectText(random, 4, false))));
  }
}

/** The scanner takes what JSON.parse takes, and strictJson no more. */
function sameAsParse(text: string): void {
  const parsed = attempt(() => JSON.parse(text) as unknown);
  const scanned = attempt(() => checkEnd(text, skipValue(text, skipSpace(text, 0), 0)));
  assert(parsed.isTaken === scanned.isTaken, `scanner and parser differ on ${JSON.stringify(text)}`);
  const strict = attempt(() => strictJson(text));
  assert(!strict.isTaken || parsed.isTaken, `strictJson takes ${JSON.stringify(text)}`);
  if (strict.isTaken) {
    assert(JSON.stringify(strict.value) === JSON.stringify(parsed.value), `strictJson changes ${text}`);
  }
}

/** What is left has the same members, each where `placeOf` says; only texts are shorter, and none that could be. */
function shortenedHasAll(text: string, charsKept: number): void {
  const whole = Buffer.from(text);
  const short = shortened(whole, charsKept);
  if (short === null) {
    const literals = [...text.matchAll(/"((?:[^"\\]|\\.)*)"(\s*:)?/gsu)];
    const values = literals.filter(([, , colon]) => colon === undefined).map(([, raw = ""]) => raw);
    const longest = Math.max(0, ...values.map((raw) => [...raw.replace(/\\u....|\\./gsu, "x")].length));
    assert(longest <= charsKept, `nothing of ${text} is cut at ${charsKept}`);
    return;
  }
  const left = Buffer.from(short.bytes).toString("latin1");
  const members = membersOf(text);
  const names: string[] = [];
  eachMember(left, skipSpace(left, 0), 0, (name, from, to) => {
    const decoded = Buffer.from(name, "latin1").toString();
    names.push(decoded);
    const span = whole.subarray(short.placeOf(from), short.placeOf(to)).toString();
    assert(span === members.get(decoded), `member ${decoded} of ${text}, cut at ${charsKept}`);
  });
  assert(names.length === members.size, `members of ${text}, cut at ${charsKept}`);
}

/** No fault is cut away. */
function shortenedHidesNothing(text: string, charsKept: number): void {
  const short = shortened(Buffer.from(text), charsKept);
  if (short === null || attempt(() => JSON.parse(text)).isTaken) return;
  const left = attempt(() => JSON.parse(Buffer.from(short.bytes).toString()));
  assert(!left.isTaken, `a fault of ${JSON.stringify(text)} is gone, cut at ${charsKept}`);
}

/** Raw members are the parsed ones, and what is put in is found while the rest stays. */
function membersAsParse(random: Random, text: string): void {
  const parsed = JSON.parse(text) as Record<string, unknown>;
  const members = membersOf(text);
  assert(members.size === Object.keys(parsed).length, `members of ${text}`);
  for (const [name, value] of members) {
    assert(JSON.stringify(JSON.parse(value)) === JSON.stringify(parsed[name]), `member ${name} of ${text}`);
    if (value.startsWith("[")) {
      const items = itemsOf(value).map((item) => JSON.parse(item) as unknown);
      assert(JSON.stringify(items) === JSON.stringify(parsed[name]), `items of ${value}`);
    }
  }
  const names = [...members.keys(), "new name"];
  const name = names[random(names.length)] ?? "";
  const replaced = membersOf(withMember(text, name, '{"put":[ 1 ]}'));
  assert(replaced.get(name) === '{"put":[ 1 ]}', `put ${name} into ${text}`);
  for (const [other, value] of members) {
    if (other !== name) assert(replaced.get(other) === value, `${other} of ${text} changed`);
  }
  const removed = membersOf(withoutMember(text, name));
  assert(!removed.has(name) && removed.size === members.size - (members.has(name) ? 1 : 0), `${name} stays`);
  const canonical = canonicalDefinition(text, null);
  assert(canonicalDefinition(canonical, null) === canonical, `no fixed point for ${text}`);
}

/** An envelope's spans are what the parser sees. */
function envelopeAsParse(random: Random): void {
  const params = objectText(random, 3, true);
  const idText = [String(random(1_000)), JSON.stringify(`i${random(9)}`), '""'][random(3)] ?? "0";
  const parts = shuffled(random, [
    '"jsonrpc":"2.0"',
    `"id":${idText}`,
    `"method" : "m"`,
    `"params" :${params}`,
  ]);
  const text = `${space(random)}{${parts.join(`${space(random)},${space(random)}`)}}`;
  const read = readEnvelope(text);
  assert(read.kind === "request" && read.idText === idText && read.paramsText === params, `envelope ${text}`);
  assert(kindOf(text) === "request", `kind of ${text}`);
}

function readersThrowFailures(text: string): void {
  const readers: (() => unknown)[] = [
    () => readEnvelope(text),
    () => kindOf(text),
    () => strictJson(text),
    () => membersOf(text),
    () => itemsOf(text),
    () => canonicalDefinition(text, null),
    () => withMember(text, "a", "1"),
    () => withoutMember(text, "a"),
  ];
  for (const read of readers) attempt(read);
}

function attempt<T>(work: () => T): { isTaken: boolean; value: T | undefined } {
  try {
    return { isTaken: true, value: work() };
  } catch (thrown) {
    if (!(thrown instanceof Failure) && !(thrown instanceof SyntaxError)) throw thrown;
    return { isTaken: false, value: undefined };
  }
}

const ATOMS = [
  "null",
  "true",
  "false",
  "0",
  "-0",
  "1.5",
  "-2e3",
  "1E+2",
  "9007199254740993",
  '""',
  '"é"',
  '"\\n"',
];

function valueText(random: Random, depth: number): string {
  const pick = random(depth > 0 ? 10 : 6);
  if (pick < 5) return ATOMS[random(ATOMS.length)] ?? "null";
  if (pick === 5) return stringText(random);
  if (pick < 8) return objectText(random, depth - 1, random(4) > 0);
  const items = Array.from({ length: random(5) }, () => valueText(random, depth - 1));
  return `[${space(random)}${items.join(`${space(random)},${space(random)}`)}${space(random)}]`;
}

function objectText(random: Random, depth: number, isUnique: boolean): string {
  const members = Array.from({ length: random(6) }, (_, at) => {
    const name = isUnique
      ? JSON.stringify(`${String.fromCharCode(97 + random(5))}${at}`)
      : stringText(random);
    return `${name}${space(random)}:${space(random)}${isUnique ? uniqueValue(random, depth) : valueText(random, depth)}`;
  });
  return `{${space(random)}${members.join(`${space(random)},${space(random)}`)}${space(random)}}`;
}

function uniqueValue(random: Random, depth: number): string {
  if (depth <= 0 || random(3) === 0) return ATOMS[random(ATOMS.length)] ?? "null";
  return random(2) === 0 ? objectText(random, depth - 1, true) : `[${uniqueValue(random, depth - 1)}]`;
}

function stringText(random: Random): string {
  const parts = ["a", "b", "\\u0061", "\\\\", '\\"', "\\ud83d\\ude00", "😀", "{", "]", ",", ":", "\\/", " "];
  return `"${Array.from({ length: random(4) }, () => parts[random(parts.length)]).join("")}"`;
}

function space(random: Random): string {
  return ["", "", "", " ", "\n", "\t\r"][random(6)] ?? "";
}

function shuffled(random: Random, items: string[]): string[] {
  return items
    .map((item) => [random(1_000_000), item] as const)
    .sort((left, right) => left[0] - right[0])
    .map(([, item]) => item);
}

const NOISE = [
  "{",
  "}",
  "[",
  "]",
  '"',
  ",",
  ":",
  "\\",
  "0",
  "1",
  "e",
  ".",
  "-",
  "t",
  "\u0000",
  "\ud800",
  " ",
];

function mutated(random: Random, text: string): string {
  const at = random(text.length + 1);
  const noise = NOISE[random(NOISE.length)] ?? "";
  if (random(3) === 0) return text.slice(0, at);
  return text.slice(0, at) + noise + text.slice(at + random(3));
}
