import { Failure } from "@capsem/base";
import { MCP_LIMITS } from "./limits.ts";
import { itemsOf, membersOf } from "./raw-members.ts";
import { CHAR, checkDepth, decodeString, eachMember, skipSpace, skipString } from "./scan.ts";

/** What a person approves of a tool. Another field may change and nobody is asked. */
const PINNED_FIELDS = [
  "_meta",
  "annotations",
  "description",
  "icons",
  "inputSchema",
  "name",
  "outputSchema",
  "title",
] as const;

/**
 * A tool's definition in one form: the pinned fields and the server's instructions, names sorted, one field a line, numbers
 * as they are written. What is hashed, and what differences are shown of. Throws Failure("parse_error") where the
 * definition is no object, and Failure("invalid_request") where it has a name twice in one object.
 */
export function canonicalDefinition(definitionText: string, instructions: string | null): string {
  const members = membersOf(definitionText);
  const fields: [string, string][] = [];
  for (const name of PINNED_FIELDS) {
    const text = members.get(name);
    if (text !== undefined) fields.push([name, canonicalValue(text, 1)]);
  }
  if (instructions !== null) fields.push(["instructions", JSON.stringify(instructions)]);
  return objectLines(fields, 0);
}

/** `text` is one value without space around it; `depth` is how far its lines are indented. */
function canonicalValue(text: string, depth: number): string {
  checkDepth(depth, MCP_LIMITS.strictDepthMax);
  switch (text.charCodeAt(0)) {
    case CHAR.openObject: {
      const fields: [string, string][] = [];
      const seen = new Set<string>();
      eachMember(text, skipSpace(text, 0), depth, (name, from, to) => {
        if (seen.has(name))
          throw new Failure("invalid_request", "Cannot read definition: a name stands twice");
        seen.add(name);
        fields.push([name, canonicalValue(text.slice(from, to), depth + 1)]);
      });
      return objectLines(fields, depth);
    }
    case CHAR.openArray: {
      const items = itemsOf(text).map((item) => canonicalValue(item, depth + 1));
      if (items.length === 0) return "[]";
      const indent = "  ".repeat(depth);
      return `[\n${items.map((item) => `${indent}  ${item}`).join(",\n")}\n${indent}]`;
    }
    case CHAR.quote:
      return JSON.stringify(decodeString(text, 0, skipString(text, 0)));
    default:
      return text;
  }
}

function objectLines(fields: [string, string][], depth: number): string {
  if (fields.length === 0) return "{}";
  // By code units, as JSON.stringify of sorted keys has them: the same in every locale.
  fields.sort(([left], [right]) => (left < right ? -1 : 1));
  const indent = "  ".repeat(depth);
  const lines = fields.map(([name, value]) => `${indent}  ${JSON.stringify(name)}: ${value}`);
  return `{\n${lines.join(",\n")}\n${indent}}`;
}
