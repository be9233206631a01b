import type { TomlNode } from "./toml.ts";

interface Span {
  readonly start: number;
  readonly end: number;
}

interface Splice extends Span {
  readonly text: string;
}

/** The lines of a TOML text while some of them change. Everything is said of the old text and done in `result`. */
export class TomlLines {
  readonly #text: string;
  /** What ends a line in this file. */
  readonly #eol: "\r\n" | "\n";
  /** Headers and pairs outside of inline tables, in order. */
  readonly #items: readonly TomlNode[];
  readonly #splices: Splice[] = [];
  readonly #tablesGone: Span[] = [];

  constructor(text: string, nodes: readonly TomlNode[]) {
    this.#text = text;
    this.#eol = /\r?\n/.exec(text)?.[0] === "\r\n" ? "\r\n" : "\n";
    this.#items = nodes.flatMap((node) => (node.kind === "table" ? [node, ...(node.body ?? [])] : [node]));
  }

  replace(start: number, end: number, value: string): void {
    this.#splices.push({ start, end, text: this.#withLineEnds(value) });
  }

  /** A new pair on the line below a header or pair, indented as that is. */
  insertAfter(node: TomlNode, keys: readonly string[], value: string): void {
    const at = this.#lineEnd(node.end);
    const indent = this.#text.slice(this.#lineStart(node.start), node.start);
    const line = this.#withLineEnds(`${indent}${keys.join(".")} = ${value}`);
    const isOpen = at === this.#text.length && !this.#text.endsWith("\n");
    const text = isOpen ? `${this.#eol}${line}` : `${line}${this.#eol}`;
    this.#splices.push({ start: at, end: at, text });
  }

  /** The whole lines of a pair, or of a table with the comments that belong to it. */
  remove(node: TomlNode): void {
    const start = this.#lineStart(node.start);
    const last = node.kind === "table" ? (node.body?.at(-1) ?? node) : node;
    const end = this.#lineEnd(last.end);
    if (node.kind === "pair") this.#splices.push({ start, end, text: "" });
    else this.#tablesGone.push({ start: this.#commentsAbove(start), end: this.#commentsBelow(end) });
  }

  /** The changed text with new sections at its end, a blank line before each. */
  result(sections: ReadonlyMap<string, ReadonlyMap<string, string>>): string {
    for (const span of this.#withBlankLines()) this.#splices.push({ ...span, text: "" });
    this.#splices.sort((a, b) => a.start - b.start);
    let text = "";
    let at = 0;
    for (const splice of this.#splices) {
      text += this.#text.slice(at, Math.max(at, splice.start)) + splice.text;
      at = Math.max(at, splice.end);
    }
    text += this.#text.slice(at);
    for (const [name, fields] of sections) {
      if (text !== "" && !text.endsWith("\n")) text += this.#eol;
      if (text !== "" && !/(?:^|\n)\r?\n$/.test(text)) text += this.#eol;
      const lines = [...fields].map(([key, value]) => this.#withLineEnds(`${key} = ${value}`));
      text += [`[${name}]`, ...lines, ""].join(this.#eol);
    }
    return text;
  }

  #withLineEnds(text: string): string {
    return text.replace(/\r?\n/g, this.#eol);
  }

  #lineStart(offset: number): number {
    return offset === 0 ? 0 : this.#text.lastIndexOf("\n", offset - 1) + 1;
  }

  #lineEnd(offset: number): number {
    const end = this.#text.indexOf("\n", offset);
    return end < 0 ? this.#text.length : end + 1;
  }

  #lineAt(start: number): string {
    return this.#text.slice(start, this.#lineEnd(start)).trim();
  }

  /** Where the comments begin that end directly above a line. A text of several lines is no comment. */
  #commentsAbove(start: number): number {
    const floor = this.#items.reduce((low, { end }) => (end <= start ? Math.max(low, end) : low), 0);
    const least = floor === 0 ? 0 : this.#lineEnd(floor);
    let at = start;
    while (at > least && this.#lineAt(this.#lineStart(at - 1)).startsWith("#")) at = this.#lineStart(at - 1);
    return at;
  }

  /** Where the comments end that begin directly below a line, unless they lead to a header: then they are its own. */
  #commentsBelow(end: number): number {
    let at = end;
    while (at < this.#text.length && this.#lineAt(at).startsWith("#")) at = this.#lineEnd(at);
    return this.#lineAt(at) === "" ? at : end;
  }

  /** Tables that go, with the blank lines that set them off on one side. */
  #withBlankLines(): Span[] {
    const spans: Span[] = [];
    for (const span of this.#tablesGone) {
      const before = spans.at(-1);
      const isNext = before !== undefined && this.#text.slice(before.end, span.start).trim() === "";
      if (isNext) spans[spans.length - 1] = { start: before.start, end: span.end };
      else spans.push(span);
    }
    return spans.map(({ start, end }) => {
      let after = end;
      while (after < this.#text.length && this.#lineAt(after) === "") after = this.#lineEnd(after);
      let before = start;
      while (before > 0 && this.#lineAt(this.#lineStart(before - 1)) === "")
        before = this.#lineStart(before - 1);
      if (after === this.#text.length) return { start: before, end: after };
      return { start, end: start === 0 || before < start ? after : end };
    });
  }
}
