/** What tests of tool calls do with a rig: declare servers, read rows, find workers. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { LEDGER_TABLES } from "@capsem/api";
import type { Vm } from "@capsem/sdk";
import { DatabaseSync } from "@photostructure/sqlite";
import type { ToolServer } from "./mcp-servers.ts";
import type { Rig } from "./rig.ts";

/** Declared as a user does, and looked at: what it says now is approved. */
export async function declare(
  rig: Rig,
  name: string,
  server: Pick<ToolServer, "url" | "grant">,
  ...more: readonly string[]
): Promise<void> {
  for (const words of [
    ["mcp", "add", name, server.url, "--grant", server.grant, ...more],
    ["mcp", "refresh", name],
  ]) {
    const { code, stderr } = await rig.cli(words);
    if (code !== 0) throw new Error(`capsem ${words.join(" ")} ended with ${code}: ${stderr}`);
  }
}

export type Row = Readonly<Record<string, unknown>>;

/** All rows of a table in the order of the ledger, once what was said before is in it. */
export async function rowsOf(rig: Rig, ledger: string, table: keyof typeof LEDGER_TABLES): Promise<Row[]> {
  // A read is answered behind what was written before it.
  await rig.client.vm(ledger).stats();
  const file = join(rig.home, "ledgers", ledger, "session.db");
  const db = new DatabaseSync(file, { readOnly: true });
  try {
    return db.prepare(`SELECT * FROM ${table} ORDER BY row_id`).all() as Row[];
  } finally {
    db.close();
  }
}

/** The end of a call comes a moment behind its answer: rows are all there when no more come. */
export async function callsOf(rig: Rig, vm: Pick<Vm, "id">): Promise<Row[]> {
  let rows = await rowsOf(rig, vm.id, "tool_calls");
  for (;;) {
    await new Promise((done) => setTimeout(done, QUIET_MS));
    const again = await rowsOf(rig, vm.id, "tool_calls");
    if (again.length === rows.length) return again;
    rows = again;
  }
}

/** Ends wait a millisecond for company in the proxy, and go through two processes. */
const QUIET_MS = 100;

/** One row as `SERVER TOOL OUTCOME`. */
export const shortOf = ({ server_name, tool_name, outcome }: Row) => `${server_name} ${tool_name} ${outcome}`;

export type Worker = "proxy" | "aggregator" | "builtin" | "egress";

/** Living workers of the rig's service, by their command lines. */
export function workersOf(rig: Rig, kind: Worker): number[] {
  const parent = rig.servicePid();
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && isWorker(pid, parent, kind))
    .sort((a, b) => a - b);
}

function isWorker(pid: number, parent: number, kind: Worker): boolean {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8");
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const [state, ppid] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return state !== "Z" && Number(ppid) === parent && words.includes(`/${kind}.cjs`);
  } catch {
    return false;
  }
}
