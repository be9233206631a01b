import type { VmStatsDetail } from "@capsem/api";
import { LEDGER_LIMITS } from "./limits.ts";
import type { Cell } from "./sqlite.ts";
import { TimeHistogram } from "./time-histogram.ts";

type ToolCount = VmStatsDetail["tools_by_name"][number];

interface Counted {
  readonly server: string;
  readonly tool: string;
  readonly times: TimeHistogram;
  calls: number;
  failed: number;
  refused: number;
  bytes_sent: number;
  bytes_received: number;
}

/** The error of a call that was done, and whose tool says that it failed. */
const TOOL_ERROR = "tool_error";

/** Calls by tool: how many, how long, how they ended. */
export class ToolCounts {
  readonly #tools = new Map<string, Counted>();

  add(rows: (sql: string) => Cell[][]): void {
    for (const [server, tool, outcome, error, duration, sent, received] of rows(
      `SELECT server_name, tool_name, outcome, error, duration_ms, bytes_sent, bytes_received
       FROM tool_calls WHERE @slice`,
    )) {
      const counted = this.#of(String(server), String(tool));
      counted.calls += 1;
      // What was refused took no time.
      if (typeof duration === "number") counted.times.add(Math.max(0, duration));
      const hasFailed = outcome === "failed" || outcome === "interrupted" || error === TOOL_ERROR;
      if (hasFailed) counted.failed += 1;
      else if (outcome !== "done" && outcome !== "cancelled") counted.refused += 1;
      counted.bytes_sent += Math.max(0, Number(sent));
      counted.bytes_received += Math.max(0, Number(received));
    }
  }

  result(): ToolCount[] {
    return [...this.#tools.values()]
      .sort((a, b) => b.calls - a.calls || (`${a.server}__${a.tool}` < `${b.server}__${b.tool}` ? -1 : 1))
      .slice(0, LEDGER_LIMITS.groupsMax)
      .map(({ server, tool, times, calls, ...counts }) => ({
        server,
        tool,
        count: calls,
        p50_ms: times.quantileMs(0.5),
        p99_ms: times.quantileMs(0.99),
        max_ms: times.maxMs,
        ...counts,
      }));
  }

  /** Names come from a guest: of very many, the rest is counted as one. */
  #of(server: string, tool: string): Counted {
    const isMore = this.#tools.size >= LEDGER_LIMITS.toolsCountedMax;
    const known = this.#tools.get(`${server}__${tool}`);
    if (known !== undefined) return known;
    const [name, of] = isMore ? ["*", "*"] : [tool, server];
    const key = `${of}__${name}`;
    const counted = this.#tools.get(key) ?? {
      ...{ server: of, tool: name, times: new TimeHistogram(), calls: 0, failed: 0, refused: 0 },
      ...{ bytes_sent: 0, bytes_received: 0 },
    };
    this.#tools.set(key, counted);
    return counted;
  }
}
