import { Failure } from "@capsem/base";

/** A value and where it is in the text. */
export type JsonPart =
  | JsonObject
  | { readonly kind: "other"; readonly start: number; readonly end: number; readonly data: unknown };

export interface JsonObject {
  readonly kind: "object";
  readonly start: number;
  readonly end: number;
  readonly data: Readonly<Record<string, unknown>>;
  readonly members: readonly { readonly key: string; readonly start: number; readonly value: JsonPart }[];
}

const DEPTH_MAX = 200;

/** The whole text as one value; anything else is refused with its line. */
export function parseJson(text: string, allowsComments: boolean): JsonPart {
  const reader = new Reader(text, allowsComments);
  reader.skip();
  const part = reader.value(0);
  reader.skip();
  if (reader.at < text.length) throw reader.broken("something follows its end");
  return part;
}

class Reader {
  readonly #text: string;
  readonly #allowsComments: boolean;
  at = 0;

  constructor(text: string, allowsComments: boolean) {
    this.#text = text;
    this.#allowsComments = allowsComments;
  }

  broken(why: string): Failure {
    const line = this.#text.slice(0, this.at).split("\n").length;
    return new Failure("file_failed", `it is not JSON, line ${line}: ${why}`);
  }

  skip(): void {
    for (;;) {
      const rest = /[ \t\r\n]*/y;
      rest.lastIndex = this.at;
      this.at += rest.exec(this.#text)?.[0].length ?? 0;
      if (this.#text[this.at] !== "/") return;
      if (!this.#allowsComments) throw this.broken("a comment");
      const isLine = this.#text.startsWith("//", this.at);
      const end = isLine
        ? this.#text.indexOf("\n", this.at)
        : this.#text.startsWith("/*", this.at)
          ? this.#text.indexOf("*/", this.at + 2)
          : -2;
      if (end === -2 || (end < 0 && !isLine)) throw this.broken("a comment without an end");
      this.at = end < 0 ? this.#text.length : end + (isLine ? 0 : 2);
    }
  }

  value(depth: number): JsonPart {
    if (depth > DEPTH_MAX) throw this.broken("it is nested too deep");
    const start = this.at;
    const first = this.#text[start];
    if (first === "{") return this.#object(start, depth);
    if (first === "[") {
      const items: unknown[] = [];
      this.#list("]", () => void items.push(this.value(depth + 1).data));
      return { kind: "other", start, end: this.at, data: items };
    }
    const data = first === '"' ? this.#string() : this.#word();
    return { kind: "other", start, end: this.at, data };
  }

  #object(start: number, depth: number): JsonObject {
    const members: { key: string; start: number; value: JsonPart }[] = [];
    this.#list("}", () => {
      const memberStart = this.at;
      if (this.#text[this.at] !== '"') throw this.broken("a name in quotes is needed");
      const key = this.#string();
      this.skip();
      if (this.#text[this.at] !== ":") throw this.broken("a colon is needed");
      this.at += 1;
      this.skip();
      members.push({ key, start: memberStart, value: this.value(depth + 1) });
    });
    const data = Object.fromEntries(members.map(({ key, value }) => [key, value.data]));
    return { kind: "object", start, end: this.at, data, members };
  }

  /** From the opening bracket past the closing one. */
  #list(close: string, readItem: () => void): void {
    this.at += 1;
    this.skip();
    if (this.#text[this.at] === close) {
      this.at += 1;
      return;
    }
    for (;;) {
      readItem();
      this.skip();
      const next = this.#text[this.at];
      this.at += 1;
      if (next === close) return;
      if (next !== ",") {
        this.at -= 1;
        throw this.broken(next === undefined ? "it ends too early" : `a comma or ${close} is needed`);
      }
      this.skip();
    }
  }

  #string(): string {
    // By hand: a pattern with alternatives takes the engine's stack for each character.
    let end = this.at + 1;
    while (end < this.#text.length && this.#text[end] !== '"') end += this.#text[end] === "\\" ? 2 : 1;
    if (end >= this.#text.length || this.#text[this.at] !== '"') throw this.broken("a value is needed");
    return this.#parse(this.#text.slice(this.at, end + 1)) as string;
  }

  #word(): unknown {
    const pattern = /[A-Za-z0-9+.-]+/y;
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined) throw this.broken("a value is needed");
    return this.#parse(found);
  }

  /** JSON.parse says whether what has the look of a scalar is one. */
  #parse(found: string): unknown {
    try {
      const value: unknown = JSON.parse(found);
      this.at += found.length;
      return value;
    } catch {
      throw this.broken("a value cannot be read");
    }
  }
}
