import * as z from "zod";
import { EVIDENCE_ROUTES } from "./evidence-routes.ts";
import { EVIDENCE_LIMITS, LAYERS } from "./ledger-schema.ts";
import { since } from "./service-schema.ts";
import { TOOL_LIMITS } from "./tool-limits.ts";
import { given, ofVmTool, onVm, READS, type Tool, tool } from "./tool-row.ts";

const vmArgument = ofVmTool.shape.vm_id.describe(
  "Id of the VM (vm_…), also of one that is gone: what it did is kept",
);
const limit = z
  .number()
  .int()
  .min(1)
  .max(EVIDENCE_LIMITS.pageRowsMax)
  .optional()
  .describe(`Entries at most, default ${TOOL_LIMITS.evidenceRows}`);

export const EVIDENCE_TOOLS = {
  capsem_timeline: tool({
    route: "timeline",
    title: "What a VM did",
    description:
      "Everything that was done in and to a VM, the newest first: commands, files in and out, tool calls, its life cycle, changes of rules, asks, and rules that matched. Each entry has what was decided, by which rule and why, how it ended and how long it took. Works for deleted VMs.",
    input: z.strictObject({
      vm_id: vmArgument,
      trace_id: z.string().min(1).max(256).optional().describe("Only entries of this trace"),
      since: since.optional().describe("A span back from now such as 30s, 10m, 2h, 7d, or an ISO time"),
      limit,
      layers: z
        .array(z.enum(LAYERS))
        .min(1)
        .optional()
        .describe(`Only these: ${LAYERS.join(", ")}`),
    }),
    output: EVIDENCE_ROUTES.timeline.result,
    annotations: READS,
    request: ({ vm_id: id, layers, limit: rows = TOOL_LIMITS.evidenceRows, ...query }) => ({
      params: { id },
      query: { ...given({ ...query, layers: layers?.join(",") }), limit: rows, newest: true },
    }),
  }),
  capsem_history: tool({
    route: "history",
    title: "Commands of a VM",
    description:
      "Commands that were asked for in a VM, the newest first: command line, user, folder, exit code, duration, bytes of output, and what was decided. total counts all that match. Works for deleted VMs.",
    input: z.strictObject({
      vm_id: vmArgument,
      limit,
      offset: z.number().int().min(0).max(10_000_000).optional().describe("Entries to skip"),
      search: z.string().min(1).max(256).optional().describe("Only commands with this plain text"),
    }),
    output: EVIDENCE_ROUTES.history.result,
    annotations: READS,
    request: ({ vm_id: id, limit: rows = TOOL_LIMITS.evidenceRows, ...query }) => ({
      params: { id },
      query: { ...given(query), limit: rows },
    }),
  }),
  capsem_stats_detail: tool({
    route: "vmStatsDetail",
    title: "Statistics of a VM",
    description:
      "What a VM did, counted: decisions by type and rule, commands and tool calls with their times in ms, files and bytes in and out, asks, how acts ended, and who asked for them. Works for deleted VMs.",
    input: z.strictObject({ vm_id: vmArgument }),
    output: EVIDENCE_ROUTES.vmStatsDetail.result,
    annotations: READS,
    request: onVm,
  }),
} as const satisfies Record<string, Tool>;
