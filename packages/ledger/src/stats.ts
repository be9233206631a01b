import type { LedgerTable, VmStats } from "@capsem/api";
import type { LedgerReader } from "./reader.ts";
import { TABLES } from "./schema.ts";
import { isoTime } from "./words.ts";

/**
 * Rows of connections that were refused for what they are: their end is all that there is of them, so each counts as
 * what was blocked beside the decisions.
 */
export const REFUSED_UNJUDGED = `net_events e WHERE e.outcome = 'blocked'
  AND NOT EXISTS (SELECT 1 FROM security_decision_events d WHERE d.event_id = e.event_id)`;

/** Counts that indexes answer, but for what was refused: that takes a look at every connection. */
export function readStats(reader: LedgerReader): VmStats {
  return reader.atOnce(() => {
    const { first, last } = timeSpan(reader);
    const refused = (action: string) =>
      reader.number(
        "SELECT count(*) FROM security_decision_events WHERE action <> 'allow' AND action = ?",
        action,
      );
    const decisions = reader.number("SELECT count(*) FROM security_decision_events");
    const [ask, block] = [refused("ask"), refused("block")];
    const unjudged = reader.number(`SELECT count(*) FROM ${REFUSED_UNJUDGED}`);
    const ofType = (condition: string) =>
      reader.number(`SELECT count(*) FROM security_decision_events WHERE ${condition}`);
    return {
      vm_id: reader.name,
      rows: reader.rows(),
      bytes: reader.bytes(),
      first_time: first === null ? null : isoTime(first),
      last_time: last === null ? null : isoTime(last),
      decisions: { allow: decisions - ask - block, ask, block: block + unjudged },
      commands: ofType("type = 'process.exec'"),
      files: ofType("type IN ('file.import', 'file.export', 'file.event')"),
      tools: ofType("type = 'mcp.tool_call'"),
      open: reader.number("SELECT count(*) FROM open_acts"),
    };
  });
}

const TIMED = TABLES.filter((table) => table !== "event_body_blobs");

/** Times of the first and the last row that have one; null for an empty ledger. */
export function timeSpan(reader: LedgerReader): { first: number | null; last: number | null } {
  const at = (table: LedgerTable, order: "ASC" | "DESC") =>
    reader.prepare(`SELECT row_id, time_ms FROM ${table} ORDER BY row_id ${order} LIMIT 1`).get() ?? null;
  const edge = (order: "ASC" | "DESC") =>
    TIMED.map((table) => at(table, order))
      .filter((row) => row !== null)
      .sort((a, b) => (order === "ASC" ? 1 : -1) * (Number(a[0]) - Number(b[0])))[0]?.[1];
  const [first, last] = [edge("ASC"), edge("DESC")];
  return { first: typeof first === "number" ? first : null, last: typeof last === "number" ? last : null };
}
