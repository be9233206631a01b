import type { ToolPin } from "@capsem/api";
import type { Catalog } from "./catalog.ts";

/**
 * Whoever looked at the server last, another proxy perhaps, saw something else than this: what pins say of its tools
 * cannot be said of these.
 */
export function isBehind({ tools }: Catalog, pins: Iterable<ToolPin>): boolean {
  for (const { tool, state, approved_hash } of pins) {
    const hash = tools.get(tool)?.hash;
    switch (state) {
      case "pinned":
        if (hash !== approved_hash) return true;
        break;
      case "changed":
        if (hash === undefined || hash === approved_hash) return true;
        break;
      case "new":
        if (hash === undefined) return true;
        break;
      case "gone":
        if (hash !== undefined) return true;
    }
  }
  return false;
}
