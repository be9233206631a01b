import { FRAME_TYPES, RESET_CODES } from "./frame.ts";
import { WIRE_GENERATION } from "./lane-hello.ts";
import { WIRE_LIMITS } from "./limits.ts";
import { RESERVED_NUMBERS } from "./message-table.ts";
import { PORTS } from "./port-table.ts";
import { TABLE_HASH } from "./table-hash.ts";
import { type JsonSchema, type MessageSchema, messageSchemas } from "./table-schema.ts";

export const TABLES_BEGIN = "<!-- tables: begin (written by `npx vitest run packages/wire -u`) -->";
export const TABLES_END = "<!-- tables: end -->";

/** The part of docs/protocol.md between its two markers, which are not in it. */
export function renderProtocolTables(hash: string = TABLE_HASH): string {
  const messages = messageSchemas();
  const parts = [
    `Wire generation ${WIRE_GENERATION}, table \`${hash}\`.`,
    "### Ports",
    table(
      ["port", "name", "lane", "opened by", "payload"],
      Object.entries(PORTS).map(([name, port]) => [
        String(port.number),
        name,
        port.lane,
        port.openedBy,
        port.payload,
      ]),
    ),
    "### Frame types",
    table(["type", "name"], numbered(FRAME_TYPES)),
    "### Reset codes",
    table(["code", "name"], numbered(RESET_CODES)),
    "### Control messages, host to guest",
    messageTable(messages.filter((message) => message.sender === "host")),
    "### Control messages, guest to host",
    messageTable(messages.filter((message) => message.sender === "guest")),
    "### Reserved message numbers",
    table(["number", "for"], Object.entries(RESERVED_NUMBERS)),
    "### Limits",
    table(
      ["limit", "value"],
      Object.entries(WIRE_LIMITS).map(([name, value]) => [name, value.toLocaleString("en-US")]),
    ),
  ];
  return parts.join("\n\n");
}

/** `page` with its tables written anew; the rest stays. */
export function withProtocolTables(page: string, hash: string): string {
  const begin = page.indexOf(TABLES_BEGIN);
  const end = page.indexOf(TABLES_END);
  if (begin < 0 || end < begin)
    return `${page}\n${TABLES_BEGIN}\n\n${renderProtocolTables(hash)}\n\n${TABLES_END}\n`;
  const before = page.slice(0, begin + TABLES_BEGIN.length);
  return `${before}\n\n${renderProtocolTables(hash)}\n\n${page.slice(end)}`;
}

function messageTable(messages: readonly MessageSchema[]): string {
  return table(
    ["number", "name", "fields"],
    messages.map((message) => [String(message.number), `\`${message.name}\``, fieldsOf(message.body)]),
  );
}

function fieldsOf(schema: JsonSchema): string {
  const required = schema.required ?? [];
  return Object.entries(schema.properties ?? {})
    .map(([name, field]) => `${name}${required.includes(name) ? "" : "?"}: ${typeOf(field)}`)
    .join(", ");
}

function typeOf(schema: JsonSchema): string {
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.type === "array") return `[${typeOf(schema.items ?? {})}]`;
  if (schema.type === "object") return `{ ${fieldsOf(schema)} }`;
  return schema.type ?? "any";
}

function numbered(entries: Readonly<Record<string, number>>): string[][] {
  return Object.entries(entries).map(([name, number]) => [String(number), name]);
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(head), `|${"---|".repeat(head.length)}`, ...rows.map(line)].join("\n");
}
