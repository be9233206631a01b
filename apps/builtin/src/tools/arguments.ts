import { Failure } from "@capsem/base";

/** What a caller gave a tool: looked at by hand, for a schema would cost a small call more than the call. */
export class Arguments {
  readonly #values: Readonly<Record<string, unknown>>;

  /** Throws "invalid_input": no object, or a name that the tool does not have. */
  constructor(values: unknown, names: readonly string[]) {
    if (values !== undefined && (typeof values !== "object" || values === null || Array.isArray(values))) {
      throw refused("arguments", "is no object");
    }
    this.#values = (values ?? {}) as Readonly<Record<string, unknown>>;
    for (const name of Object.keys(this.#values)) {
      if (!names.includes(name))
        throw refused(name.slice(0, 64), `is not known; there are ${names.join(", ")}`);
    }
  }

  text(name: string, charsMax: number): string {
    const value = this.#values[name];
    if (typeof value !== "string") throw refused(name, "must be a string");
    if (value.length > charsMax) throw refused(name, `has ${value.length} characters, limit ${charsMax}`);
    return value;
  }

  choice<T extends string>(name: string, choices: readonly T[], otherwise: T): T {
    const value = this.#values[name];
    if (value === undefined) return otherwise;
    const found = choices.find((choice) => choice === value);
    if (found === undefined) throw refused(name, `must be one of ${choices.join(", ")}`);
    return found;
  }

  integer(name: string, min: number, max: number, otherwise: number): number {
    const value = this.#values[name];
    if (value === undefined) return otherwise;
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < min || value > max)
      throw refused(name, `must be an integer from ${min} to ${max}`);
    return value;
  }

  flag(name: string, otherwise: boolean): boolean {
    const value = this.#values[name];
    if (value === undefined) return otherwise;
    if (typeof value !== "boolean") throw refused(name, "must be true or false");
    return value;
  }
}

function refused(name: string, why: string): Failure {
  return new Failure("invalid_input", `Cannot call the tool: ${name} ${why}`);
}
