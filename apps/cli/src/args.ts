import { usageError } from "./cli-error.ts";

/** A command's words and options as the user gave them; the getters say what is wrong with a value. */
export class Args {
  readonly words: readonly string[];
  /** What followed `--`, null without it. */
  readonly rest: readonly string[] | null;
  readonly #options: ReadonlyMap<string, readonly string[]>;

  constructor(
    words: readonly string[],
    rest: readonly string[] | null,
    options: ReadonlyMap<string, readonly string[]>,
  ) {
    this.words = words;
    this.rest = rest;
    this.#options = options;
  }

  /** The parser has counted the words. */
  word(at: number): string {
    return this.words[at] ?? "";
  }

  flag(name: string): boolean {
    return this.#options.has(name);
  }

  text(name: string): string | undefined {
    return this.#options.get(name)?.at(-1);
  }

  all(name: string): readonly string[] {
    return this.#options.get(name) ?? [];
  }

  number(name: string, min: number, max: number, step?: number, unit?: string): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = /^[0-9]+(\.[0-9]+)?$/.test(text) ? Number(text) : Number.NaN;
    const fits = value >= min && value <= max && (step === undefined || value % step === 0);
    if (!fits) {
      const kind = step === 1 ? "a whole number" : "a number";
      const steps = step === undefined || step === 1 ? "" : `, in steps of ${step},`;
      const of = unit === undefined ? "" : ` of ${unit}`;
      const range = Number.isFinite(max) ? `from ${min} to ${max}` : `from ${min}`;
      const what = `${kind}${of} ${range}${steps}`;
      throw usageError(`Cannot use --${name} ${JSON.stringify(text)}: ${what} is needed`);
    }
    return value;
  }

  choice<T extends string>(name: string, choices: readonly T[]): T | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const found = choices.find((choice) => choice === text);
    if (found === undefined)
      throw usageError(`Cannot use --${name} ${JSON.stringify(text)}: it is one of ${choices.join(", ")}`);
    return found;
  }
}
