import { usageError } from "./cli-error.ts";

/** The `--arg` words of a call, before anything is known of its tool. */
export interface GivenArguments {
  readonly [key: string]: { readonly text: string; readonly value: unknown };
}

/** A value that is JSON is that; anything else is the text it is. Quotes make a text of a number. */
export function givenArguments(words: readonly string[]): GivenArguments {
  const given = new Map<string, GivenArguments[string]>();
  for (const word of words) {
    const equals = word.indexOf("=");
    if (equals <= 0) throw usageError(`Cannot use --arg ${JSON.stringify(word)}: KEY=VALUE is needed`);
    const [key, text] = [word.slice(0, equals), word.slice(equals + 1)];
    if (given.has(key))
      throw usageError(`Cannot use --arg ${key} twice: a list is one value, as in ${key}=[1,2]`);
    given.set(key, { text, value: parsedValue(text) });
  }
  return Object.fromEntries(given);
}

/** Only where a value may be meant as a text does it matter what its tool takes. */
export function needsSchema(given: GivenArguments): boolean {
  return Object.values(given).some(({ value }) => typeof value !== "string");
}

/** What `5` is to a tool that takes a text there is a text. `definition` is the tool as its server declares it. */
export function typedArguments(given: GivenArguments, definition: unknown): Record<string, unknown> {
  const properties = recordOf(recordOf(recordOf(definition).inputSchema).properties);
  return Object.fromEntries(
    Object.entries(given).map(([key, { text, value }]) => {
      const schema = Object.hasOwn(properties, key) ? properties[key] : undefined;
      const isText = typeof value !== "string" && takesText(schema) && !takes(schema, value);
      return [key, isText ? text : value];
    }),
  );
}

function parsedValue(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const takesText = (schema: unknown): boolean => typesOf(schema).includes("string");

function takes(schema: unknown, value: unknown): boolean {
  const types = typesOf(schema);
  if (value === null) return types.includes("null");
  if (Array.isArray(value)) return types.includes("array");
  return types.includes(typeof value) || (Number.isInteger(value) && types.includes("integer"));
}

/** Those that a schema names itself, or in alternatives. */
function typesOf(schema: unknown): readonly unknown[] {
  const { type, anyOf, oneOf } = recordOf(schema);
  const alternatives = [anyOf, oneOf].flatMap((each) => (Array.isArray(each) ? each : []));
  return [type, ...alternatives.map((each) => recordOf(each).type)].flat();
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : {};
}
