import * as z from "zod";
import { SERVICE_ROUTES } from "./service-routes.ts";
import { HOST_LOG_SOURCES, LOG_BYTES_MAX, LOG_LINES_MAX, logWindow, since } from "./service-schema.ts";
import { TOOL_LIMITS } from "./tool-limits.ts";
import { given, noArguments, READS, type Tool, tool, vmArgument } from "./tool-row.ts";

export const logArguments = {
  grep: z.string().min(1).max(256).optional().describe("Only lines with this plain text"),
  tail: z.number().int().min(0).max(LOG_LINES_MAX).optional().describe("Only the last lines"),
  max_bytes: z
    .number()
    .int()
    .min(1)
    .max(LOG_BYTES_MAX)
    .optional()
    .describe(`Bytes at most, default ${TOOL_LIMITS.windowBytes}, up to 1 MiB`),
};
const window = {
  since: since.optional().describe("A span back from now such as 30s, 10m, 2h, 7d, or an ISO time"),
  limit: z.number().int().min(1).max(100).optional().describe("Entries at most"),
};

export const DIAGNOSTIC_TOOLS = {
  capsem_status: tool({
    route: "status",
    title: "Service status",
    description:
      "The Capsem service: version, accelerator, image, running and total VMs, prepared VMs, confinement, and the limits for cpus, memory and number of VMs.",
    input: noArguments,
    output: SERVICE_ROUTES.status.result,
    annotations: READS,
    request: () => ({}),
  }),
  capsem_stats: tool({
    route: "stats",
    title: "Service statistics",
    description:
      "Counts since the service started: requests, times per route in ms, VMs created, deleted and failed, jobs, pool use, and memory in bytes.",
    input: noArguments,
    output: SERVICE_ROUTES.stats.result,
    annotations: READS,
    request: () => ({}),
  }),
  capsem_host_logs: tool({
    route: "hostLogs",
    title: "Read Capsem's logs",
    description:
      "The last log lines of one of Capsem's own processes, oldest first, each a JSON text. truncated says that older ones exist. For a VM's own logs use capsem_vm_logs.",
    input: z.strictObject({
      source: z
        .enum(HOST_LOG_SOURCES)
        .optional()
        .describe(`Whose: ${HOST_LOG_SOURCES.join(", ")}; default service`),
      ...logArguments,
    }),
    output: logWindow,
    annotations: READS,
    request: ({ source = "service", max_bytes = TOOL_LIMITS.windowBytes, ...query }) => ({
      params: { source },
      query: { ...given(query), max_bytes },
    }),
  }),
  capsem_panics: tool({
    route: "panics",
    title: "List crashes",
    description:
      "Abnormal ends of Capsem's own processes, the newest first: process, time, message, location and first frames. Empty when nothing crashed.",
    input: z.strictObject(window),
    output: SERVICE_ROUTES.panics.result,
    annotations: READS,
    request: (query) => ({ query: given(query) }),
  }),
  capsem_triage: tool({
    route: "triage",
    title: "What went wrong",
    description:
      "What went wrong lately, the worst first: crashes, failed VMs, server errors, lost connections, slow operations, each with a count. Start here when a VM or a command does not work; when every tool fails it does too.",
    input: z.strictObject({
      ...window,
      vm_id: vmArgument.optional().describe("Only findings of this VM"),
    }),
    output: SERVICE_ROUTES.triage.result,
    annotations: READS,
    request: (query) => ({ query: given(query) }),
  }),
} as const satisfies Record<string, Tool>;
