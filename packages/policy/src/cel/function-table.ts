import { assert } from "@capsem/base";
import { fieldRow } from "../event/field-table.ts";
import {
  canonicalHost,
  isInDomain,
  isInNetwork,
  type Network,
  parseIp,
  parseNetwork,
} from "../event/host.ts";
import { type CelValue, isList, isMap } from "../event/value.ts";
import { isTainted, TAINT_LEVELS, type TaintLevel } from "../label.ts";
import { POLICY_LIMITS } from "../limits.ts";
import type { Expression, Prepared } from "./expression.ts";
import { SPENT } from "./meter.ts";
import { NoValue, type Outcome } from "./outcome.ts";
import { compilePattern, type Pattern } from "./pattern.ts";
import { patternSize } from "./pattern-size.ts";
import { ExpressionProblem } from "./problem.ts";

/** A function of the rule language. */
export interface FunctionRow {
  readonly form: "receiver" | "global" | "either";
  /** As docs and the type checker write it, one per form and overload. */
  readonly signatures: readonly string[];
  readonly doc: string;
  /** Made once per call in the source: constant arguments are checked and prepared here. */
  readonly prepare: (args: readonly Expression[]) => Prepared;
}

const text = (value: CelValue | undefined): string | undefined =>
  typeof value === "string" ? value : undefined;

function onTexts(
  name: string,
  apply: (a: string, b: string) => CelValue,
  stepsFor: (a: string, b: string) => number = (a, b) => (a.length + b.length) / CHARS_PER_STEP,
): FunctionRow["prepare"] {
  const fault = new NoValue(`${name} of what is no text`);
  return () => ({
    costPerKib: 4,
    stepsFor: ([first, second]) => stepsFor(text(first) ?? "", text(second) ?? ""),
    apply: ([first, second]) => {
      const [a, b] = [text(first), text(second)];
      return a === undefined || b === undefined ? fault : apply(a, b);
    },
  });
}

const CHARS_PER_STEP = 64;
/** Of a text that begins everywhere in the other one and never ends there, each place is looked at to its end. */
const stepsToFind = (a: string, b: string) => (a.length * (1 + b.length)) / CHARS_PER_STEP;

/** The texts of a constant: one, or a list of them. */
function constants(name: string, argument: Expression | undefined): readonly { text: string; at: number }[] {
  const items = argument?.kind === "list" ? argument.items : argument === undefined ? [] : [argument];
  if (items.length === 0 || items.length > POLICY_LIMITS.constantsMax) {
    throw new ExpressionProblem(
      "bad_literal",
      `${name} takes 1 to ${POLICY_LIMITS.constantsMax} constants`,
      argument?.at ?? 0,
    );
  }
  return items.map((item) => {
    if (item.kind !== "literal" || typeof item.value !== "string") {
      throw new ExpressionProblem(
        "bad_literal",
        `${name} takes a constant text here, so that it is checked once`,
        item.at,
      );
    }
    return { text: item.value, at: item.at };
  });
}

/** Fields that hold hosts are in their one spelling already; any other text is brought to it, or is no host. */
function hostReader(argument: Expression | undefined): {
  readonly hostIn: (value: string) => string | null;
  readonly steps: number;
} {
  const kind = argument?.kind === "field" ? fieldRow(argument.path)?.kind : undefined;
  if (kind === "host" || kind === "ip") return { hostIn: (value) => value, steps: 1 };
  // A text that is no plain name goes through the parser of URLs.
  return { hostIn: canonicalHost, steps: 1_000 };
}

const STEPS_PER_HOST = 4;

/** `apply` gets the host that the first argument names, and what was made of the constants of the second. */
function onHost<T>(
  name: string,
  parse: (text: string) => T | string,
  apply: (host: string, items: readonly T[]) => boolean,
): FunctionRow["prepare"] {
  const fault = new NoValue(`${name} of what is no text`);
  return (args) => {
    const items = constants(name, args[1]).map(({ text: source, at }) => {
      const parsed = parse(source);
      if (typeof parsed === "string") {
        throw new ExpressionProblem("bad_literal", `Cannot use "${source.slice(0, 80)}": ${parsed}`, at);
      }
      return parsed;
    });
    const { hostIn, steps } = hostReader(args[0]);
    return {
      costPerKib: 4 + items.length,
      stepsFor: () => steps + items.length * STEPS_PER_HOST,
      apply: ([value]) => {
        if (typeof value !== "string") return fault;
        const host = hostIn(value);
        return host !== null && apply(host, items);
      },
    };
  };
}

function parseDomain(source: string): { readonly domain: string } | string {
  const domain = canonicalHost(source);
  if (domain === null) return "it is no host";
  return domain === source ? { domain } : `write it as "${domain}"`;
}

function prepareMatches(args: readonly Expression[]): Prepared {
  const [pattern] = constants("matches", args[1]);
  if (args[1]?.kind === "list" || pattern === undefined) {
    throw new ExpressionProblem("bad_literal", "matches takes one constant pattern", args[1]?.at ?? 0);
  }
  const refuse = (why: string) => {
    return new ExpressionProblem("bad_pattern", `Cannot use pattern: ${why}`, pattern.at);
  };
  const { patternCharsMax, patternSizeMax } = POLICY_LIMITS;
  if (pattern.text.length > patternCharsMax) throw refuse(`it is longer than ${patternCharsMax} characters`);
  const size = patternSize(pattern.text);
  if (size > patternSizeMax) {
    throw refuse(`it has about ${size} instructions with all repetitions, limit ${patternSizeMax}`);
  }
  return preparedMatches(pattern.text, size, refuse);
}

function preparedMatches(source: string, size: number, refuse: (why: string) => ExpressionProblem): Prepared {
  const fault = new NoValue("matches of what is no text");
  let compiled: Pattern | undefined;
  return {
    costPerKib: 64 + size,
    // The matcher counts by itself.
    stepsFor: () => 1,
    pattern: {
      size,
      compile() {
        const made = compilePattern(source);
        if (typeof made === "string") throw refuse(made);
        compiled = made;
      },
    },
    apply([value], meter) {
      assert(compiled !== undefined, "a pattern is compiled before it is asked");
      return typeof value === "string" ? (compiled.test(value, meter) ?? SPENT) : fault;
    },
  };
}

function prepareTainted(args: readonly Expression[]) {
  const [level] = constants("tainted", args[1]);
  const name = level?.text as TaintLevel;
  if (!TAINT_LEVELS.includes(name)) {
    throw new ExpressionProblem(
      "bad_literal",
      `tainted takes one of ${TAINT_LEVELS.join(", ")}`,
      args[1]?.at ?? 0,
    );
  }
  return {
    costPerKib: 0,
    // The compiler gives it the two fields of the label in place of `label` itself.
    apply: ([, , confidentiality, integrity]: readonly CelValue[]) =>
      isTainted(String(confidentiality), String(integrity), name),
  };
}

const lowerAscii = (value: string) => value.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());

function toInt(value: CelValue | undefined): Outcome {
  if (typeof value === "bigint") return value;
  if (typeof value === "number" && Math.abs(value) < 2 ** 63) return BigInt(Math.trunc(value));
  if (typeof value === "string" && /^-?\d{1,18}$/.test(value)) return BigInt(value);
  return new NoValue("int of what is no whole number");
}

function toDouble(value: CelValue | undefined): Outcome {
  if (typeof value === "number") return value;
  if (typeof value === "bigint") return Number(value);
  if (typeof value === "string" && /^-?\d{1,30}(\.\d{1,30})?$/.test(value)) return Number(value);
  return new NoValue("double of what is no number");
}

function toText(value: CelValue | undefined): Outcome {
  return value === undefined || value === null || typeof value === "object"
    ? new NoValue("string of what is no single value")
    : String(value);
}

function sizeOf(value: CelValue | undefined): Outcome {
  if (typeof value === "string") return BigInt(charactersIn(value));
  if (value !== undefined && isList(value)) return BigInt(value.length);
  if (value !== undefined && isMap(value)) return BigInt(value.size);
  return new NoValue("size of what is no text, list or map");
}

/** A pair of surrogates is one; counted in place, because a list of them takes eight times the text. */
function charactersIn(value: string): number {
  let count = 0;
  for (let at = 0; at < value.length; at += 1) {
    count += 1;
    if ((value.codePointAt(at) ?? 0) > 0xffff) at += 1;
  }
  return count;
}

const plain = (
  apply: (value: CelValue | undefined) => Outcome,
  costPerKib: number,
  stepsPerCharacter = 1,
) => {
  return (): Prepared => ({
    costPerKib,
    stepsFor: ([value]) => 1 + (text(value)?.length ?? 0) * stepsPerCharacter,
    apply: ([value]) => apply(value),
  });
};

/** The closed list of functions. What CEL has beyond it does not compile. */
export const FUNCTIONS: ReadonlyMap<string, FunctionRow> = new Map<string, FunctionRow>([
  [
    "cidr",
    {
      form: "global",
      signatures: ["cidr(string, string): bool", "cidr(string, list<string>): bool"],
      doc: "the address lies in the network, or in one of them; false for a name",
      prepare: onHost(
        "cidr",
        (source): Network | string => parseNetwork(source) ?? "it is no network such as 10.0.0.0/8",
        (host, networks) => {
          const ip = parseIp(host);
          return ip !== null && networks.some((network) => isInNetwork(ip, network));
        },
      ),
    },
  ],
  [
    "host_in",
    {
      form: "global",
      signatures: ["host_in(string, string): bool", "host_in(string, list<string>): bool"],
      doc: "the host is that domain, or one of them, or lies below it",
      prepare: onHost("host_in", parseDomain, (host, domains) =>
        domains.some(({ domain }) => isInDomain(host, domain)),
      ),
    },
  ],
  [
    "tainted",
    {
      form: "global",
      signatures: ["tainted(Label, string): bool"],
      doc: "the label is at that level or worse: internal, secret, user, untrusted",
      prepare: prepareTainted,
    },
  ],
  [
    "matches",
    {
      form: "receiver",
      signatures: ["string.matches(string): bool"],
      doc: "RE2 finds the constant pattern anywhere in the text, in linear time",
      prepare: prepareMatches,
    },
  ],
  [
    "startsWith",
    {
      form: "receiver",
      signatures: ["string.startsWith(string): bool"],
      doc: "the text begins so",
      prepare: onTexts("startsWith", (a, b) => a.startsWith(b)),
    },
  ],
  [
    "endsWith",
    {
      form: "receiver",
      signatures: ["string.endsWith(string): bool"],
      doc: "the text ends so",
      prepare: onTexts("endsWith", (a, b) => a.endsWith(b)),
    },
  ],
  [
    "contains",
    {
      form: "receiver",
      signatures: ["string.contains(string): bool"],
      doc: "the text holds it anywhere",
      prepare: onTexts("contains", (a, b) => a.includes(b), stepsToFind),
    },
  ],
  [
    "lowerAscii",
    {
      form: "receiver",
      signatures: ["string.lowerAscii(): string"],
      doc: "A to Z in lower case; other letters stay",
      prepare: plain(
        (value) =>
          typeof value === "string" ? lowerAscii(value) : new NoValue("lowerAscii of what is no text"),
        16,
        // Letters of both cases in turn are replaced one by one.
        4,
      ),
    },
  ],
  [
    "size",
    {
      form: "either",
      signatures: ["size(string): int", "size(list): int", "size(map): int"],
      doc: "characters of a text, items of a list, entries of a map",
      prepare: plain(sizeOf, 64),
    },
  ],
  [
    "int",
    {
      form: "global",
      signatures: ["int(string): int", "int(double): int", "int(int): int"],
      doc: "as a whole number",
      prepare: plain(toInt, 1),
    },
  ],
  [
    "double",
    {
      form: "global",
      signatures: ["double(string): double", "double(int): double", "double(double): double"],
      doc: "as a number with a point",
      prepare: plain(toDouble, 1),
    },
  ],
  [
    "string",
    {
      form: "global",
      signatures: ["string(int): string", "string(double): string", "string(bool): string"],
      doc: "as text",
      prepare: plain(toText, 1),
    },
  ],
]);
