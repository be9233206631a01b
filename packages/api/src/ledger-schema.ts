import * as z from "zod";
import { OUTCOMES } from "./ledger-table.ts";
import { since } from "./service-schema.ts";
import { vmId, vmName } from "./vm-schema.ts";

const count = z.number().int().nonnegative();
const ms = z.number().nonnegative();
const time = z.string();
export const decisionAction = z.enum(["allow", "ask", "block"]);
export const outcome = z.enum(OUTCOMES);

/** A VM's id, alive or gone, or `host`. */
export const ledgerId = z.union([vmId, z.literal("host")]);
/** A ledger that was set aside: whose it is, `@`, and the name that it was given then. */
const archivedLedger = z
  .string()
  .regex(
    /^(vm_[a-z2-7]{16}|host)@[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/,
    "an id, @, and a name that `archive` gave",
  );
/** What can be read, verified and exported. */
export const ledgerRef = z.union([vmId, z.literal("host"), archivedLedger]);

export const EVIDENCE_LIMITS = { pageRowsMax: 1_000, pageRowsDefault: 100 } as const;
const whole = z.coerce.number().int();
export const pageQuery = {
  since: since.optional(),
  /** From the page before. */
  cursor: z.string().min(1).max(64).optional(),
  limit: whole.min(1).max(EVIDENCE_LIMITS.pageRowsMax).optional(),
};
/** Null: that was all. */
const next = z.string().nullable();

export const LAYERS = ["exec", "file", "tool", "net", "lifecycle", "settings", "ask", "rule"] as const;
/** A comma between them. */
export const layers = z.string().regex(/^[a-z]+(,[a-z]+)*$/, "layer names with a comma between them");

/** One line of a VM's story. */
export const timelineEntry = z.strictObject({
  time,
  layer: z.enum(LAYERS),
  event_id: z.string(),
  trace_id: z.string().nullable(),
  requester: z.string(),
  /** For a person: `bash -c "make test"`, `import report.txt`, `stop`. */
  title: z.string(),
  decision: decisionAction,
  rule_id: z.string().nullable(),
  reason: z.string().nullable(),
  /** Null while the act goes on. */
  outcome: outcome.nullable(),
  duration_ms: ms.nullable(),
  /** What the layer knows beside it: exit_code, bytes, job_id … */
  details: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])),
});
export type TimelineEntry = z.infer<typeof timelineEntry>;
export const timelineQuery = z.strictObject({
  ...pageQuery,
  trace_id: z.string().min(1).max(256).optional(),
  layers: layers.optional(),
  /** The newest first. */
  newest: z
    .enum(["true", "false"])
    .transform((word) => word === "true")
    .optional(),
});
export const timelinePage = z.strictObject({ entries: z.array(timelineEntry), next });
export type TimelinePage = z.infer<typeof timelinePage>;

/** One command that was asked for, the newest first. */
export const historyEntry = z.strictObject({
  time,
  event_id: z.string(),
  job_id: z.string().nullable(),
  command: z.string(),
  user: z.string().nullable(),
  cwd: z.string().nullable(),
  requester: z.string(),
  decision: decisionAction,
  rule_id: z.string().nullable(),
  reason: z.string().nullable(),
  outcome: outcome.nullable(),
  exit_code: z.number().int().nullable(),
  signal: z.number().int().nullable(),
  duration_ms: ms.nullable(),
  stdout_bytes: count.nullable(),
  stderr_bytes: count.nullable(),
});
export type HistoryEntry = z.infer<typeof historyEntry>;
export const historyQuery = z.strictObject({
  limit: pageQuery.limit,
  offset: whole.min(0).max(10_000_000).optional(),
  /** Plain text that the command holds. */
  search: z.string().min(1).max(256).optional(),
});
export const historyPage = z.strictObject({ entries: z.array(historyEntry), total: count });
export type HistoryPage = z.infer<typeof historyPage>;

export const matchedRule = z.strictObject({
  rule_id: z.string(),
  action: z.string(),
  priority: z.number().int(),
  detection: z.string(),
  fault: z.string().nullable(),
});
export const securityEntry = z.strictObject({
  time,
  event_id: z.string(),
  trace_id: z.string().nullable(),
  requester: z.string(),
  client: z.string().nullable(),
  type: z.string(),
  action: decisionAction,
  rule_id: z.string(),
  reason: z.string(),
  detection: z.string(),
  policy_digest: z.string(),
  matched: z.array(matchedRule),
  /** The event as it was judged, secrets replaced. */
  event: z.record(z.string(), z.unknown()),
  is_redacted: z.boolean(),
});
export type SecurityEntry = z.infer<typeof securityEntry>;
export const securityQuery = z.strictObject({
  ...pageQuery,
  action: decisionAction.optional(),
  type: z.string().min(1).max(64).optional(),
  rule_id: z.string().min(1).max(128).optional(),
});
export const securityPage = z.strictObject({ events: z.array(securityEntry), next });
export type SecurityPage = z.infer<typeof securityPage>;

export const vmStats = z.strictObject({
  vm_id: ledgerRef,
  rows: count,
  bytes: count,
  first_time: time.nullable(),
  last_time: time.nullable(),
  decisions: z.strictObject({ allow: count, ask: count, block: count }),
  commands: count,
  files: count,
  tools: count,
  /** Acts that have not ended. */
  open: count,
});
export type VmStats = z.infer<typeof vmStats>;
const times = z.strictObject({ count, p50_ms: ms, p99_ms: ms, max_ms: ms });
export const vmStatsDetail = z.strictObject({
  ...vmStats.shape,
  outcomes: z.record(z.string(), count),
  types: z.array(z.strictObject({ type: z.string(), allow: count, ask: count, block: count })),
  rules: z.array(
    z.strictObject({
      rule_id: z.string(),
      matched: count,
      won: count,
      last_time: time,
      detection: z.string(),
    }),
  ),
  exec: z.strictObject({ ...times.shape, failed: count, stdout_bytes: count, stderr_bytes: count }),
  /** Calls by server and tool, what was called most first; bytes are those of arguments and results. */
  tools_by_name: z.array(
    z.strictObject({
      server: z.string(),
      tool: z.string(),
      ...times.shape,
      failed: count,
      refused: count,
      bytes_sent: count,
      bytes_received: count,
    }),
  ),
  file: z.strictObject({ imports: count, exports: count, bytes_in: count, bytes_out: count }),
  asks: z.strictObject({ made: count, approved: count, denied: count, expired: count }),
  requesters: z.array(z.strictObject({ requester: z.string(), acts: count })),
});
export type VmStatsDetail = z.infer<typeof vmStatsDetail>;

export const ledgerInfo = z.strictObject({
  vm_id: ledgerId,
  /** The name that the VM had last. */
  name: vmName.nullable(),
  /** The VM is still there. */
  has_vm: z.boolean(),
  rows: count,
  bytes: count,
  first_time: time.nullable(),
  last_time: time.nullable(),
  /** Set aside by `verify --archive`. */
  archived: count,
});
export type LedgerInfo = z.infer<typeof ledgerInfo>;

export const CHAIN_FAULTS = ["altered", "missing", "reordered", "cut", "unsigned", "unreadable"] as const;
/** The first row that is not what was written. */
export const chainFault = z.strictObject({
  kind: z.enum(CHAIN_FAULTS),
  /** Its number in the chain. */
  row: count,
  table: z.string().nullable(),
  event_id: z.string().nullable(),
  message: z.string(),
});
export type ChainFault = z.infer<typeof chainFault>;
export const verifyResult = z.strictObject({
  vm_id: ledgerRef,
  is_whole: z.boolean(),
  rows: count,
  /** Rows up to the last head that the service signed. */
  signed_rows: count,
  head: z.string(),
  fault: chainFault.nullable(),
});
export type VerifyResult = z.infer<typeof verifyResult>;
