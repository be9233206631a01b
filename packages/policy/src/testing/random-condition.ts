import { EVENT_TYPE_NAMES } from "../event/event-table.ts";
import { FIELD_PATHS, fieldRow } from "../event/field-table.ts";
import type { Random } from "./random.ts";
import { HOSTS, INTS, IPS, TEXTS } from "./random-event.ts";

export interface ConditionOptions {
  /** Only what the CEL library itself can evaluate in the same way. */
  readonly isPlainCel?: boolean;
}

/** A random condition that compiles, over the fields of the table. */
export function randomCondition(random: Random, options: ConditionOptions = {}, depth = 0): string {
  const inner = () => randomCondition(random, options, depth + 1);
  switch (random.below(depth > 3 ? 1 : 8)) {
    case 1:
      return `(${inner()} && ${inner()})`;
    case 2:
      return `(${inner()} || ${inner()})`;
    case 3:
      return `!(${inner()})`;
    case 4:
      return `(${inner()} ? ${inner()} : ${inner()})`;
    case 5:
      return `has(${random.pick(FIELD_PATHS)})`;
    default:
      return aboutField(random, random.pick(FIELD_PATHS), options);
  }
}

const text = (value: string) => JSON.stringify(value);

/** A comparison that reads one field outside of `has`. */
export function aboutField(random: Random, path: string, options: ConditionOptions = {}): string {
  const row = fieldRow(path);
  if (path === "event.type") return `event.type == ${text(random.pick(EVENT_TYPE_NAMES))}`;
  if (row?.values !== undefined) {
    return random.chance(3)
      ? `${path} != ${text(random.pick(row.values))}`
      : `${path} in [${text(random.pick(row.values))}]`;
  }
  switch (row?.kind) {
    case "bool":
      return random.chance(2) ? path : `${path} == ${random.chance(2)}`;
    case "int":
      return aboutInt(random, path);
    case "double":
      return `${path} ${random.pick(["<", ">", "=="])} 0.25`;
    case "host":
    case "ip":
      return aboutHost(random, path, row.kind === "host" ? HOSTS : IPS, options);
    case "texts":
      return aboutList(random, path);
    case "headers":
      return `${path}[${text(random.pick(["path", "constructor"]))}] == ${text(random.pick(TEXTS))}`;
    case "json":
      return aboutJson(random, path, options);
    case "jsons":
      return `${path}.${random.pick(["exists", "all"])}(m, m.path == ${text(random.pick(TEXTS))})`;
    case "upper":
      return `${path} ${random.pick(["==", "!="])} "GET"`;
    case "lower":
      return `${path}.startsWith("a")`;
    case "path":
      return aboutText(random, path, ["", "a", "b", "ab"]);
    default:
      return aboutText(random, path, TEXTS);
  }
}

function aboutInt(random: Random, path: string): string {
  const value = random.pick(INTS);
  return random.pick([
    `${path} == ${value}`,
    `${path} in [${value}, 7]`,
    `${path} + 1 > ${value}`,
    `-${path} <= ${value}`,
    `${path} % 2 == 1`,
    `${path} * 9223372036854775807 > 0`,
    `10 / ${path} > 1`,
    `double(${path}) < 1.5`,
    `string(${path}) == "443"`,
  ]);
}

function aboutText(random: Random, path: string, values: readonly string[]): string {
  const value = text(random.pick(values));
  return random.pick([
    `${path} == ${value}`,
    `${value} == ${path}`,
    `${path} != ${value}`,
    `${path} in [${value}, "zz"]`,
    `${path}.startsWith(${value})`,
    `${path}.endsWith(${value})`,
    `${path}.contains(${value})`,
    `${path}.lowerAscii() == "get"`,
    `${path}.matches("^a+b?$")`,
    `size(${path}) > 1`,
    `${path} + "x" == "ax"`,
    `${path} < ${value}`,
  ]);
}

function aboutHost(
  random: Random,
  path: string,
  hosts: readonly string[],
  { isPlainCel }: ConditionOptions,
): string {
  const equality = [
    `${path} == ${text(random.pick(hosts))}`,
    `${path} in [${text(random.pick(hosts))}, "b.test"]`,
  ];
  if (isPlainCel === true || path.endsWith(".ip")) equality.splice(1, 1);
  if (isPlainCel === true) return random.pick(equality);
  return random.pick([
    ...equality,
    `host_in(${path}, ["com", "b.test"])`,
    `host_in(${path}, "example.com")`,
    `cidr(${path}, ["10.0.0.0/8", "::/64"])`,
  ]);
}

function aboutList(random: Random, path: string): string {
  const value = text(random.pick(TEXTS));
  return random.pick([
    `${value} in ${path}`,
    `${path}.exists(i, i == ${value})`,
    `${path}.all(i, i.startsWith(${value}))`,
    `${path}.exists_one(i, i == ${value})`,
    `size(${path}.filter(i, i != ${value})) > 1`,
    `${path}.map(i, i + "a").exists(j, j == "aa")`,
    `${path}[0] == ${value}`,
    `${path}.exists(i, ${path}.all(j, i == j))`,
  ]);
}

function aboutJson(random: Random, path: string, { isPlainCel }: ConditionOptions): string {
  const key = random.pick(["path", "count", "constructor", "nested"]);
  const forms = [
    `${path}.${key} == ${random.pick(INTS)}`,
    `${path}.${key} > ${random.pick(INTS)}`,
    `${path}.${key}.contains("a")`,
    `${path}.${key}.path == "a"`,
    `"${key}" in ${path}`,
    `${path}.exists(k, k == "${key}")`,
    `!${path}.${key}`,
  ];
  if (isPlainCel !== true) forms.push(`has(${path}.${key})`, `has(${path}.nested.${key})`);
  return random.pick(forms);
}
