import { isDeepStrictEqual } from "node:util";
import { Failure } from "@capsem/base";
import type { ConfigFormat, McpServerEntry } from "./mcp-clients.ts";
import { type JsonObject, type JsonPart, parseJson } from "./mcp-json-parts.ts";

interface JsonFormatOptions {
  /** What this client's entries have beside command and args. */
  readonly extra: Readonly<Record<string, string>>;
  readonly allowsComments: boolean;
}

/** JSON that is changed in one place: every other byte stays, because the file is the client's. */
export function jsonFormat({ extra, allowsComments }: JsonFormatOptions): ConfigFormat {
  return {
    set: (text, keys, entry) => setMember(text ?? "", keys, { ...extra, ...entry }, allowsComments),
    remove: (text, keys) => (text === null ? null : removeMember(text, keys, allowsComments)),
  };
}

function setMember(
  text: string,
  keys: readonly string[],
  entry: McpServerEntry & Record<string, unknown>,
  allowsComments: boolean,
): string {
  if (text.trim() === "") return `${JSON.stringify(nested(keys, entry), null, 2)}\n`;
  const unit = indentOf(text);
  let object = rootOf(text, allowsComments);
  for (const [depth, key] of keys.entries()) {
    const found = object.members.findLast((member) => member.key === key);
    const rest = keys.slice(depth + 1);
    if (found === undefined) return insert(text, object, key, nested(rest, entry), unit, depth + 1);
    if (rest.length === 0) {
      // What the user added to it stays.
      const old = found.value.kind === "object" ? (found.value.data as Record<string, unknown>) : {};
      const value = { ...old, ...entry };
      if (isDeepStrictEqual(old, value)) return text;
      return text.slice(0, found.value.start) + print(value, unit, depth + 1) + text.slice(found.value.end);
    }
    object = objectOf(found.value, key);
  }
  return text;
}

function removeMember(text: string, keys: readonly string[], allowsComments: boolean): string {
  if (text.trim() === "") return text;
  let object = rootOf(text, allowsComments);
  for (const key of keys.slice(0, -1)) {
    const found = object.members.findLast((member) => member.key === key);
    if (found === undefined) return text;
    object = objectOf(found.value, key);
  }
  const at = object.members.findLastIndex((member) => member.key === keys.at(-1));
  const member = object.members[at];
  if (member === undefined) return text;
  const before = object.members[at - 1];
  const after = object.members[at + 1];
  if (before !== undefined) return text.slice(0, before.value.end) + text.slice(member.value.end);
  if (after !== undefined) return text.slice(0, member.start) + text.slice(after.start);
  return `${text.slice(0, object.start)}{}${text.slice(object.end)}`;
}

function rootOf(text: string, allowsComments: boolean): JsonObject {
  return objectOf(parseJson(text, allowsComments), null);
}

function objectOf(part: JsonPart, key: string | null): JsonObject {
  if (part.kind === "object") return part;
  const what = key === null ? "its content" : JSON.stringify(key);
  throw new Failure("file_failed", `${what} is not an object`);
}

function insert(
  text: string,
  object: JsonObject,
  key: string,
  value: unknown,
  unit: string | null,
  depth: number,
): string {
  const last = object.members.at(-1);
  const colon = unit === null ? ":" : ": ";
  const member = `${JSON.stringify(key)}${colon}${print(value, unit, depth)}`;
  const newline = unit === null ? "" : `\n${unit.repeat(depth)}`;
  if (last !== undefined)
    return `${text.slice(0, last.value.end)},${newline}${member}${text.slice(last.value.end)}`;
  const close = unit === null ? "" : `\n${unit.repeat(depth - 1)}`;
  // A comment in an empty object stays before the member.
  const inner = text.slice(object.start + 1, object.end - 1).trimEnd();
  return `${text.slice(0, object.start + 1)}${inner}${newline}${member}${close}${text.slice(object.end - 1)}`;
}

function print(value: unknown, unit: string | null, depth: number): string {
  if (unit === null) return JSON.stringify(value);
  return JSON.stringify(value, null, unit).replaceAll("\n", `\n${unit.repeat(depth)}`);
}

function nested(keys: readonly string[], value: unknown): unknown {
  return keys.reduceRight((inner, key) => ({ [key]: inner }), value);
}

/** One step of the file's own indentation; null for a file on one line. */
function indentOf(text: string): string | null {
  const found = /^\s*\{[^"\n]*\n([ \t]+)"/.exec(text)?.[1];
  if (found !== undefined) return found;
  return /^\s*\{\s*\S[^\n]*\}\s*$/.test(text) && !/^\s*\{\s*\}\s*$/.test(text) ? null : "  ";
}
