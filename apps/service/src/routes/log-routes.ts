import { join } from "node:path";
import { vmFolder } from "../home/layout.ts";
import { type Handlers, json } from "../http/handler.ts";
import { readAllLogs } from "../log/all-logs.ts";
import { ReadBudget, readLogWindow } from "../log/log-window.ts";
import { VM_LOG_FILES } from "../log/vm-logs.ts";
import type { RouteParts } from "./parts.ts";

export function logRoutes(parts: RouteParts) {
  return {
    logs: async ({ params, query, context }) => {
      const vm = parts.registry.get(params.id);
      await vm.logs?.flush();
      const folder = vmFolder(parts.layout, vm.id).logs;
      const { source, tail, grep, max_bytes: maxBytes } = query;
      const request = { tail, grep, maxBytes };
      const budget = new ReadBudget(context.signal);
      if (source === undefined) return json(await readAllLogs(folder, request, budget));
      return json(await readLogWindow(join(folder, VM_LOG_FILES[source]), request, budget));
    },
  } satisfies Partial<Handlers>;
}
