import { join } from "node:path";
import { type Answer, type Handlers, json } from "../http/handler.ts";
import { TROUBLE_LIMITS } from "../limits.ts";
import { readOwnerLogs } from "../log/host-log.ts";
import { type LogWindow, ReadBudget, readLogWindow } from "../log/log-window.ts";
import { listPanics } from "../trouble/panic-list.ts";
import { sinceMsOf } from "../trouble/since.ts";
import { triage } from "../trouble/triage.ts";
import type { RouteParts } from "./parts.ts";

export function serviceRoutes(parts: RouteParts) {
  const { layout, powers, registry } = parts;
  return {
    status: async () => json(parts.status()),
    health: async () => json({ ok: true as const }),
    stats: async () => json(await parts.stats()),
    events: async ({ context, openSocket }): Promise<Answer<"events">> => {
      await parts.events.follow(openSocket, { watches: context.asks !== "own" });
      return { kind: "socket" };
    },
    panics: async ({ query, context }) => {
      const { limit = TROUBLE_LIMITS.listedDefault } = query;
      const sinceMs = sinceMsOf(query.since, powers.nowMs());
      return json(await listPanics(layout, { sinceMs, limit, signal: context.signal }));
    },
    triage: async ({ query, context }) => {
      const { limit = TROUBLE_LIMITS.listedDefault, vm_id: vmId = null } = query;
      const sinceMs = sinceMsOf(query.since, powers.nowMs());
      return json(await triage(layout, parts.findings, { sinceMs, vmId, limit, signal: context.signal }));
    },
    hostLogs: async ({ params, query, context }) => {
      const { tail, grep, max_bytes: maxBytes } = query;
      const request = { tail, grep, maxBytes };
      const of = (): Promise<LogWindow> => {
        const { source } = params;
        if (source !== "owner") {
          return readLogWindow(join(layout.logs, `${source}.jsonl`), request, new ReadBudget(context.signal));
        }
        const ids = registry.list().map(({ id }) => id);
        return readOwnerLogs(layout, ids, request, context.signal);
      };
      return json(await of());
    },
  } satisfies Partial<Handlers>;
}
