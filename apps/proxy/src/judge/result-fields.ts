import { textOf } from "@capsem/base";
import { itemsOf, membersOf, shortened } from "@capsem/mcp-protocol";
import type { Fields } from "./judge.ts";
import { plainObject } from "./plain-json.ts";

/** What rules may read of a result, and whether that is all of it. */
export interface ResultParts {
  readonly fields: Fields;
  readonly isError: boolean;
  /** Nothing of the result but texts that are in the fields. */
  readonly isWhole: boolean;
  /** As results of the newer protocol say it; undefined of one that does not. */
  readonly resultType: string | undefined;
  readonly hasCacheHint: boolean;
  /** URIs of resources that it names. */
  readonly links: readonly string[];
}

/** Enough that a cut at the event's own bound is seen there. */
const CONTENT_CHARS_MAX = 65_537;
/** Where no rule reads what is structured, more than this is not worth parsing for the ledger's event. */
const STRUCTURED_CHARS_MAX = 131_072;
/** Of one result; a longer URI is read by our own name for it alone. */
const LINKS_MAX = 256;
const LINK_CHARS_MAX = 2_048;
/** A message of a prompt holds content, which holds a resource, which holds text. */
const DEPTH_MAX = 4;

/** Of a text more than this is in no field. */
const LITERAL_CHARS_MAX = 2 * CONTENT_CHARS_MAX;

/**
 * As much of a large result as `resultParts` reads, where no rule reads what is structured: its long texts are cut behind
 * what a field holds.
 */
export function readablePart(result: {
  readonly text: string;
  readonly bytes?: Uint8Array | undefined;
}): string {
  const short = result.bytes === undefined ? null : shortened(result.bytes, LITERAL_CHARS_MAX);
  return short === null ? result.text : textOf(short.bytes);
}

/**
 * Of a result as its server wrote it: texts of `content` (tools), `messages` (prompts), `contents` (resources) or
 * `completion` as one text, and what is structured. `readsStructured`: some rule reads it, so it is parsed whatever its
 * size is, and strictly. Throws Failure("parse_error" | "invalid_request") where it is no JSON object, or one that
 * readers may take for different ones: such a thing is not passed on.
 */
export function resultParts(resultText: string, readsStructured: boolean): ResultParts {
  const members = membersOf(resultText);
  const content = new Gathered();
  for (const name of ["content", "contents", "messages", "completion"]) {
    const text = members.get(name);
    if (text !== undefined) content.addAll(text, 0);
  }
  const isError = members.get("isError") === "true";
  const fields: Fields = { "mcp.response.content": content.text, "mcp.response.is_error": isError };
  const structured = structuredOf(members.get("structuredContent"), readsStructured);
  if (structured !== undefined) fields["mcp.response.structured"] = structured;
  if (content.isCut) fields["mcp.truncated"] = true;
  const hasAll = structured !== undefined || !members.has("structuredContent");
  const isWhole = content.isWhole && !content.isCut && hasAll;
  const resultType = members.get("resultType");
  const { links } = content;
  return { fields, isError, isWhole, resultType, hasCacheHint: members.has("ttlMs"), links };
}

/** The same of an error: its words and data come from the same server. */
export function errorParts(errorText: string): ResultParts {
  membersOf(errorText);
  const fields: Fields = { "mcp.response.content": errorText, "mcp.response.is_error": true };
  return { fields, isError: true, isWhole: true, resultType: undefined, hasCacheHint: false, links: [] };
}

function structuredOf(text: string | undefined, isRead: boolean): Record<string, unknown> | undefined {
  if (text?.startsWith("{") !== true) return undefined;
  if (isRead) return plainObject(text) as Record<string, unknown>;
  if (text.length > STRUCTURED_CHARS_MAX) return undefined;
  try {
    return plainObject(text) as Record<string, unknown>;
  } catch {
    // Such as an integer beyond 2^53: the client has it, the event does not.
    return undefined;
  }
}

/** Texts of content blocks, a line between two. */
class Gathered {
  text = "";
  isWhole = true;
  /** A text went on. */
  isCut = false;
  readonly links: string[] = [];

  addAll(text: string, depth: number): void {
    if (depth > DEPTH_MAX) this.isWhole = false;
    else if (text.startsWith("[")) for (const item of itemsOf(text)) this.#add(item, depth);
    else this.#add(text, depth);
  }

  #add(item: string, depth: number): void {
    if (item.startsWith('"')) this.#join(this.#decoded(item));
    if (!item.startsWith("{")) return;
    const members = membersOf(item);
    this.#link(members.get("uri"));
    const text = members.get("text");
    const inner = members.get("content") ?? members.get("resource") ?? members.get("values");
    if (text?.startsWith('"') === true) this.#join(this.#decoded(text));
    if (inner !== undefined) this.addAll(inner, depth + 1);
    if (text !== undefined || inner !== undefined) return;
    this.isWhole = false;
    const uri = members.get("uri");
    if (uri?.startsWith('"') === true) this.#join(this.#decoded(uri));
  }

  #link(uri: string | undefined): void {
    if (uri?.startsWith('"') !== true || uri.length > LINK_CHARS_MAX || this.links.length >= LINKS_MAX)
      return;
    this.links.push(JSON.parse(uri) as string);
  }

  #join(text: string): void {
    if (this.text.length > CONTENT_CHARS_MAX) this.isCut = true;
    else this.text = this.text === "" ? text : `${this.text}\n${text}`;
  }

  /** A long literal is decoded as far as an event holds it. */
  #decoded(literal: string): string {
    if (literal.length <= LITERAL_CHARS_MAX) return JSON.parse(literal) as string;
    this.isCut = true;
    return JSON.parse(`${cutLiteral(literal)}"`) as string;
  }
}

/** Not within an escape. */
function cutLiteral(literal: string): string {
  const cut = literal.slice(0, LITERAL_CHARS_MAX);
  const last = cut.lastIndexOf("\\");
  if (last < cut.length - 6) return cut;
  let first = last;
  while (cut.charAt(first - 1) === "\\") first -= 1;
  const isEscape = (last - first) % 2 === 0;
  const needed = cut.charAt(last + 1) === "u" ? 6 : 2;
  return isEscape && cut.length - last < needed ? cut.slice(0, last) : cut;
}
