import { type EventFields, SecurityEvent, securityEvent } from "../event/event.ts";
import { CARRIED, EVENT_TYPES, type EventType } from "../event/event-table.ts";
import { type FieldRow, fieldRow } from "../event/field-table.ts";
import type { Random } from "./random.ts";

/** Few values, so that random rules meet random events. */
export const TEXTS = ["", "a", "b", "ab", "tools/call", "GET", "constructor", "__proto__", "é💥"] as const;
export const HOSTS = ["example.com", "api.example.com", "b.test", "10.1.2.3", "192.0.2.7", "::1"] as const;
export const IPS = ["10.1.2.3", "192.0.2.7", "::1"] as const;
export const INTS = [0, 1, 2, 443, -5] as const;
const KEYS = ["path", "count", "constructor", "nested"] as const;

function randomJson(random: Random, depth: number): unknown {
  switch (random.below(depth > 2 ? 4 : 6)) {
    case 0:
      return random.pick(TEXTS);
    case 1:
      return random.pick(INTS);
    case 2:
      return random.pick([0.5, -1.5, null]);
    case 3:
      return random.chance(2);
    case 4:
      return Array.from({ length: random.below(4) }, () => randomJson(random, depth + 1));
    default:
      return randomRecord(random, depth + 1);
  }
}

function randomRecord(random: Random, depth: number): Record<string, unknown> {
  return Object.fromEntries(random.some(KEYS, 2).map((key) => [key, randomJson(random, depth)]));
}

export function randomValue(random: Random, row: FieldRow): unknown {
  if (row.values !== undefined) return random.pick(row.values);
  const texts = () => Array.from({ length: random.below(4) }, () => random.pick(TEXTS));
  switch (row.kind) {
    case "bool":
      return random.chance(2);
    case "int":
      return random.pick(INTS);
    case "double":
      return random.pick([0, 0.25, -3.5]);
    case "upper":
      return random.pick(["GET", "POST"]);
    case "host":
      return random.pick(HOSTS);
    case "ip":
      return random.pick(IPS);
    case "texts":
      return texts();
    case "headers":
      return Object.fromEntries(random.some(KEYS, 2).map((key) => [key, random.pick(TEXTS)]));
    case "json":
      return randomRecord(random, 0);
    case "jsons":
      return Array.from({ length: random.below(3) }, () => randomRecord(random, 0));
    default:
      return random.pick(TEXTS);
  }
}

/** An event of a type with about half of what it may carry. */
export function randomEvent(random: Random, type: EventType): SecurityEvent {
  const required: readonly string[] = EVENT_TYPES[type].requires;
  const fields: Record<string, unknown> = {};
  for (const path of CARRIED.get(type) ?? []) {
    const row = fieldRow(path);
    if (row === undefined || path === "event.type" || path.endsWith(".valid")) continue;
    if (required.includes(path) || random.chance(2)) fields[path] = randomValue(random, row);
  }
  return securityEvent(type, { event_id: "00000000abcd" }, fields as EventFields);
}

/** The same event without one field: what a rule about it must not match. */
export function without(event: SecurityEvent, path: string): SecurityEvent {
  const facts = new Map(event.facts);
  for (const name of facts.keys()) if (name === path || name.startsWith(`${path}.`)) facts.delete(name);
  return new SecurityEvent(event.type, event.identity, facts);
}
