import type * as z from "zod";

type RawIssue = z.core.$ZodRawIssue;
type Issue = z.core.$ZodIssue;

/** One thing wrong with a value: where, and in plain words what is wanted there. Never the value itself. */
export interface Fault {
  /** Dotted from the value's root; empty for the root itself. */
  readonly path: string;
  readonly text: string;
}

export type Parsed<T> =
  | { readonly kind: "value"; readonly value: T }
  | { readonly kind: "faults"; readonly faults: readonly Fault[] };

/** Parses what somebody else sent. Whoever shows what is wrong with it uses this, so that all say it the same way. */
export function parseOrFaults<S extends z.ZodType>(schema: S, value: unknown): Parsed<z.output<S>> {
  const parsed = schema.safeParse(value, { error: issueText });
  return parsed.success
    ? { kind: "value", value: parsed.data }
    : { kind: "faults", faults: parsed.error.issues.flatMap(faultsOf) };
}

/** The first faults as one line; `root` names the value where a fault is its own. */
export function faultLine(faults: readonly Fault[], root = ""): string {
  const shown = faults.slice(0, FAULTS_SHOWN).map(({ path, text }) => {
    const where = path === "" ? root : path;
    return where === "" ? text : `${where}: ${text}`;
  });
  const more = faults.length - shown.length;
  return `${shown.join("; ")}${more > 0 ? `; and ${more} more` : ""}`;
}

/** Names are the sender's: a long one is cut, and a long list ends. */
const NAME_CHARS_MAX = 64;
const FAULTS_SHOWN = 5;

function faultsOf(issue: Issue): Fault[] {
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => ({
      path: pathOf([...issue.path, key]),
      text: "there is no such argument",
    }));
  }
  return [{ path: pathOf(issue.path), text: issue.message }];
}

function pathOf(parts: readonly PropertyKey[]): string {
  return parts
    .map(String)
    .map((name) => (name.length <= NAME_CHARS_MAX ? name : `${name.slice(0, NAME_CHARS_MAX)}…`))
    .join(".");
}

/** The words for an issue whose schema has none of its own. */
function issueText(issue: RawIssue): string {
  switch (issue.code) {
    case "invalid_type":
      return issue.input === undefined ? "missing" : (TYPES[issue.expected] ?? `of type ${issue.expected}`);
    case "invalid_value":
      return issue.input === undefined ? "missing" : choice(issue.values);
    case "too_big":
      return bound(issue.inclusive === false ? "less than" : "at most", issue.maximum, issue.origin);
    case "too_small":
      return bound(issue.inclusive === false ? "more than" : "at least", issue.minimum, issue.origin);
    case "not_multiple_of":
      return `in steps of ${issue.divisor}`;
    case "invalid_format":
      return FORMATS[issue.format] ?? "not of the right form";
    case "invalid_union":
      // The first alternative is the usual one.
      return issue.input === undefined
        ? "missing"
        : (issue.errors.flat()[0]?.message ?? "of an unknown kind");
    default:
      return "not of the right form";
  }
}

const TYPES: Readonly<Record<string, string>> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  record: "an object",
  null: "null",
};

const FORMATS: Readonly<Record<string, string>> = {
  datetime: "an ISO time with its offset",
};

function choice(values: readonly unknown[]): string {
  const words = values.map(String);
  return words.length === 1 ? `${words[0]}` : `one of ${words.join(", ")}`;
}

function bound(what: string, limit: number | bigint, origin: string): string {
  const unit = UNITS[origin];
  if (unit === undefined) return `${what} ${limit}`;
  return `${what} ${limit} ${limit === 1 ? unit[0] : unit[1]}`;
}

const UNITS: Readonly<Record<string, readonly [string, string]>> = {
  string: ["character", "characters"],
  array: ["entry", "entries"],
};
