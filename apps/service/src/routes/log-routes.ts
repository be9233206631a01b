import { join } from "node:path";
import { vmFolder } from "../home/layout.ts";
import { type Handlers, json } from "../http/handler.ts";
import { readLogWindow } from "../log/log-window.ts";
import { VM_LOG_FILES } from "../log/vm-logs.ts";
import type { RouteParts } from "./parts.ts";

export function logRoutes(parts: RouteParts) {
  return {
    logs: async ({ params, query }) => {
      const vm = parts.registry.get(params.id);
      await vm.logs?.flush();
      const path = join(vmFolder(parts.layout, vm.id).logs, VM_LOG_FILES[query.source ?? "console"]);
      const { tail, grep, max_bytes: maxBytes } = query;
      return json(await readLogWindow(path, { tail, grep, maxBytes }));
    },
  } satisfies Partial<Handlers>;
}
