import { isEndTable, type OpenActs } from "./open-acts.ts";
import type { Row } from "./row.ts";
import { columnIndex } from "./schema.ts";

const decision = (column: string) => 1 + columnIndex("security_decision_events", column);
const TYPE_AT = decision("type");
const RULE_EVENT_AT = 1 + columnIndex("security_rule_events", "event_id");
const ASK_EVENT_AT = 1 + columnIndex("security_ask_events", "event_id");

/** The life of a VM, and the settings that give a ledger more room: neither may wait for room. */
const ESSENTIAL_TYPES: readonly unknown[] = ["vm.lifecycle", "settings.change"];
const ESSENTIAL_TABLES: readonly string[] = ["lifecycle_events", "policy_mutations"];

/**
 * Whether every row may go into the reserve of a full ledger: the end of an open act; what is about the life of the VM,
 * with the rules and the event that belong to it.
 */
export function areEssential(rows: readonly Row[], open: OpenActs): boolean {
  const events = new Set<unknown>();
  for (const row of rows) {
    if (row[0] === "security_decision_events" && ESSENTIAL_TYPES.includes(row[TYPE_AT])) events.add(row[1]);
  }
  const isEssentialEvent = (eventId: unknown) => {
    const table = open.get(String(eventId))?.table;
    return events.has(eventId) || (table !== undefined && ESSENTIAL_TABLES.includes(table));
  };
  return rows.every((row) => {
    switch (row[0]) {
      case "security_decision_events":
        return events.has(row[1]);
      case "security_rule_events":
        return isEssentialEvent(row[RULE_EVENT_AT]);
      case "security_ask_events":
        return isEssentialEvent(row[ASK_EVENT_AT]);
      case "event_body_blobs":
        // It may come in the append before its decision's. Alone it is worth nothing, so nobody sends it alone.
        return true;
      default:
        return (
          ESSENTIAL_TABLES.includes(row[0]) ||
          (isEndTable(row[0]) && open.get(String(row[1]))?.table === row[0])
        );
    }
  });
}
