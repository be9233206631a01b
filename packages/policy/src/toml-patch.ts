import type { TomlNode } from "./toml.ts";
import { TomlLines } from "./toml-lines.ts";

type Path = readonly string[];

/** A pair to add, with its value as TOML writes it. */
interface Added {
  readonly keys: Path;
  readonly value: string;
}

/**
 * Changes values of a TOML text and leaves every byte of the rest: comments, order, blank lines, spaces. It knows
 * four ways to write a table (a header, dotted keys, an inline table, and mixtures) and keeps to the one it finds.
 * What it gives is to be parsed again by who asked: it does not prove that its result says what was wanted.
 */
export class TomlPatch {
  readonly #text: string;
  readonly #nodes: readonly TomlNode[];
  readonly #values = new Map<TomlNode, string>();
  readonly #gone = new Set<TomlNode>();
  readonly #inline = new Map<TomlNode, Added[]>();
  readonly #adding: { readonly path: Path; readonly value: string }[] = [];
  readonly #tables: { readonly path: Path; readonly fields: ReadonlyMap<string, string> }[] = [];

  constructor(text: string, nodes: readonly TomlNode[]) {
    this.#text = text;
    this.#nodes = nodes;
  }

  /** Replaces the value at `path`, or adds a pair at the end of the table above it. */
  set(path: Path, value: string): void {
    const node = leafAt(this.#nodes, path);
    if (node === undefined) this.#adding.push({ path, value });
    else this.#values.set(node, value);
  }

  /** A table that is nowhere in the text yet. */
  addTable(path: Path, fields: ReadonlyMap<string, string>): void {
    this.#tables.push({ path, fields });
  }

  /**
   * Removes the pair or the table at `path`, however it is written. A table with a header takes along the comments
   * inside it and those that touch its header from above: they are about it. Comments above a pair stay.
   */
  remove(path: Path): void {
    const mark = (nodes: readonly TomlNode[]) => {
      for (const node of nodes) {
        if (isAtOrBelow(node.path, path)) this.#gone.add(node);
        else if (node.body !== undefined) mark(node.body);
      }
    };
    mark(this.#nodes);
  }

  result(): string {
    const lines = new TomlLines(this.#text, this.#nodes);
    const sections = new Map<string, Map<string, string>>();
    for (const { path, value } of this.#adding) {
      if (this.#addInline(path, value) || this.#addLine(lines, path, value)) continue;
      const section = path.slice(0, -1).join(".");
      const fields = sections.get(section) ?? new Map<string, string>();
      sections.set(section, fields.set(path.at(-1) ?? "", value));
    }
    for (const { path, fields } of this.#tables) {
      if (!this.#addInline(path, inlineText([...fields].map(([key, value]) => `${key} = ${value}`)))) {
        sections.set(path.join("."), new Map(fields));
      }
    }
    this.#change(lines, this.#nodes);
    return lines.result(sections);
  }

  #change(lines: TomlLines, nodes: readonly TomlNode[]): void {
    for (const node of nodes) {
      if (this.#gone.has(node)) lines.remove(node);
      else if (node.kind === "table") this.#change(lines, node.body ?? []);
      else if (this.#isChanged(node)) lines.replace(node.valueStart, node.end, this.#valueOf(node));
    }
  }

  /** Below an inline table nothing can be added but inside its braces. */
  #addInline(path: Path, value: string): boolean {
    const find = (nodes: readonly TomlNode[]): TomlNode | undefined => {
      for (const node of nodes) {
        if (node.body === undefined || this.#gone.has(node)) continue;
        const inner = find(node.body);
        if (inner !== undefined) return inner;
        if (node.kind === "pair" && isAtOrBelow(path, node.path)) return node;
      }
      return undefined;
    };
    const table = find(this.#nodes);
    if (table === undefined) return false;
    const added = this.#inline.get(table) ?? [];
    this.#inline.set(table, [...added, { keys: path.slice(table.path.length), value }]);
    return true;
  }

  /** At the end of the section that holds the table, after a header or after dotted keys of the same table. */
  #addLine(lines: TomlLines, path: Path, value: string): boolean {
    const above = path.slice(0, -1);
    const header = this.#nodes.find(
      (node) => node.kind === "table" && node.path.length === above.length && isAtOrBelow(node.path, above),
    );
    if (header !== undefined) {
      lines.insertAfter(header.body?.at(-1) ?? header, path.slice(-1), value);
      return true;
    }
    const root = { path: [], body: this.#nodes.filter((node) => node.kind === "pair") };
    for (const section of [root, ...this.#nodes.filter((node) => node.kind === "table")]) {
      if (section.path.length >= above.length) continue;
      const sibling = section.body
        ?.filter((node) => !this.#gone.has(node) && isAtOrBelow(node.path, above))
        .at(-1);
      if (sibling === undefined) continue;
      lines.insertAfter(sibling, path.slice(section.path.length), value);
      return true;
    }
    return false;
  }

  #isChanged(node: TomlNode): boolean {
    if (this.#gone.has(node) || this.#values.has(node) || this.#inline.has(node)) return true;
    return node.body?.some((inner) => this.#isChanged(inner)) === true;
  }

  /** The value's text; an inline table is written anew as far as something in it changes. */
  #valueOf(node: TomlNode): string {
    const value = this.#values.get(node);
    if (value !== undefined) return value;
    if (node.body === undefined || !this.#isChanged(node)) return this.#text.slice(node.valueStart, node.end);
    const kept = node.body
      .filter((inner) => !this.#gone.has(inner))
      .map((inner) => this.#text.slice(inner.start, inner.valueStart) + this.#valueOf(inner));
    const added = (this.#inline.get(node) ?? []).map((pair) => `${pair.keys.join(".")} = ${pair.value}`);
    return inlineText([...kept, ...added]);
  }
}

function inlineText(pairs: readonly string[]): string {
  return pairs.length === 0 ? "{}" : `{ ${pairs.join(", ")} }`;
}

function leafAt(nodes: readonly TomlNode[], path: Path): TomlNode | undefined {
  for (const node of nodes) {
    if (node.kind === "pair" && node.path.length === path.length && isAtOrBelow(node.path, path)) return node;
    const inner = isAtOrBelow(path, node.path) ? leafAt(node.body ?? [], path) : undefined;
    if (inner !== undefined) return inner;
  }
  return undefined;
}

function isAtOrBelow(path: Path, above: Path): boolean {
  return path.length >= above.length && above.every((part, index) => part === path[index]);
}
