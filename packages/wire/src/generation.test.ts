/** Generation 1 is frozen (docs/protocol.md, "Generations"): what it has stays as it is, what it reserved may come. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { WIRE_GENERATION } from "./lane-hello.ts";
import { tableText } from "./table-schema.ts";

type Json = string | number | boolean | null | Json[] | { [name: string]: Json };
interface Table {
  [part: string]: Json;
  ports: Record<string, { number: number; payload: string }>;
  messages: ({ number: number } & Record<string, Json>)[];
  reserved: Record<string, string>;
}

const FROZEN = JSON.parse(readFileSync(new URL("generation-1.json", import.meta.url), "utf8")) as Table;
const now = () => JSON.parse(tableText()) as Table;

/** Where `table` is not what `frozen` promised: paths. */
function changes(frozen: Table, table: Table): string[] {
  const { ports, messages, reserved, ...rest } = frozen;
  const found = Object.keys(rest).filter((part) => !isEqual(rest[part], table[part]));
  for (const [name, port] of Object.entries(ports)) {
    const isReserved = port.payload.startsWith("reserved: ");
    const given = table.ports[name];
    if (isReserved ? given?.number !== port.number : !isEqual(given, port)) found.push(`ports.${name}`);
  }
  const byNumber = new Map(table.messages.map((message) => [message.number, message]));
  for (const message of messages) {
    if (!isEqual(byNumber.get(message.number), message)) found.push(`messages.${message.number}`);
  }
  for (const number of Object.keys(reserved)) {
    const isKept = table.reserved[number] !== undefined || byNumber.has(Number(number));
    if (!isKept) found.push(`reserved.${number}`);
  }
  const known = new Set([...messages.map((message) => message.number), ...Object.keys(reserved).map(Number)]);
  for (const number of byNumber.keys()) if (!known.has(number)) found.push(`messages.${number}`);
  return found;
}

/** The order of fields says nothing; that of lists does. */
function isEqual(left: Json | undefined, right: Json | undefined): boolean {
  return JSON.stringify(sorted(left)) === JSON.stringify(sorted(right));
}

function sorted(value: Json | undefined): Json | undefined {
  if (Array.isArray(value)) return value.map((item) => sorted(item) ?? null);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.keys(value)
      .toSorted()
      .map((key) => [key, sorted(value[key]) ?? null]),
  );
}

test("nothing that generation 1 has is another thing now", () => {
  expect(WIRE_GENERATION, "a later generation has a frozen table of its own").toBe(1);
  expect(changes(FROZEN, now())).toEqual([]);
});

test("what is changed, taken away, or new without a reserved number is named", () => {
  const changed = (change: (table: Table) => unknown) => {
    const table = structuredClone(FROZEN);
    change(table);
    return changes(FROZEN, table);
  };
  const [first] = FROZEN.messages;
  const [reserved = ""] = Object.keys(FROZEN.reserved);
  const first0 = `messages.${first?.number}`;
  expect(changed((table) => Object.assign(table.messages[0] ?? {}, { name: "other" }))).toEqual([first0]);
  expect(changed((table) => Object.assign(table.messages[0]?.body ?? {}, { required: [] }))).toEqual([
    first0,
  ]);
  expect(changed((table) => table.messages.shift())).toEqual([first0]);
  expect(changed((table) => Object.assign(table.limits ?? {}, { streamsMax: 1 }))).toEqual(["limits"]);
  expect(changed((table) => Object.assign(table.ports.job ?? {}, { number: 9 }))).toEqual(["ports.job"]);
  expect(changed((table) => Object.assign(table.ports.dns ?? {}, { number: 9 }))).toEqual(["ports.dns"]);
  expect(changed((table) => delete table.reserved[reserved])).toEqual([`reserved.${reserved}`]);
  expect(changed((table) => table.messages.push({ number: 250, name: "new" }))).toEqual(["messages.250"]);
});

test("a reserved number may become a message, and a reserved port may be used", () => {
  const table = structuredClone(FROZEN);
  const [number = ""] = Object.keys(table.reserved);
  delete table.reserved[number];
  table.messages.push({ number: Number(number), name: "new", sender: "host", body: {} });
  Object.assign(table.ports.dns ?? {}, { payload: "records" });
  expect(changes(FROZEN, table)).toEqual([]);
});
