import * as z from "zod";
import { vmId } from "./vm-schema.ts";

export const serviceStatus = z.strictObject({
  version: z.string(),
  pid: z.number().int(),
  started_at: z.string(),
  home: z.string(),
  accelerator: z.strictObject({ name: z.enum(["kvm", "hvf", "tcg"]), reason: z.string() }).nullable(),
  image: z.string().nullable(),
  vms: z.strictObject({ running: z.number(), total: z.number() }),
  /** Whether our own processes are confined, and by what or why not. */
  confinement: z.strictObject({ is_enforced: z.boolean(), reason: z.string() }),
  /** Prepared VMs that the next create takes. */
  pool: z.strictObject({ warm: z.number(), preparing: z.number(), target: z.number() }),
  /** What new VMs are forked from, one for each size: in memory, and being made just now, which happens once. */
  goldens: z.strictObject({ ready: z.number(), making: z.number() }),
  /** The rules in force: what was chosen, how many, and faults of a file that was changed and could not be read. */
  policy: z.strictObject({
    preset: z.string(),
    digest: z.string(),
    rules: z.number().int(),
    has_corp: z.boolean(),
    faults: z.number().int(),
  }),
  /** `away`: nothing is done until it is back. */
  ledger: z.strictObject({ state: z.enum(["ok", "starting", "away"]), reason: z.string().nullable() }),
  /** Asks that wait, and how many follow the events: without any an ask ends sooner. */
  asks: z.strictObject({ pending: z.number().int(), watchers: z.number().int() }),
  limits: z.strictObject({
    running_max: z.number(),
    retained_max: z.number(),
    memory_gib_max: z.number(),
    cpus_max: z.number(),
  }),
});
export type ServiceStatus = z.infer<typeof serviceStatus>;

const count = z.number().int().nonnegative();
const ms = z.number().nonnegative();

/** Counts since the service started; a route's times are of its last calls, as many as the service keeps. */
export const serviceStats = z.strictObject({
  started_at: z.string(),
  uptime_secs: z.number().nonnegative(),
  requests: z.strictObject({ total: count, failed: count, in_flight: count }),
  routes: z.array(
    z.strictObject({ route: z.string(), calls: count, failed: count, p50_ms: ms, p99_ms: ms, max_ms: ms }),
  ),
  vms: z.strictObject({ running: count, total: count, created: count, deleted: count, failed: count }),
  pool: z.strictObject({ claimed: count, missed: count }),
  jobs: z.strictObject({ running: count, started: count }),
  /** Resident bytes: the service's own, and of all owners and hypervisors together. */
  memory: z.strictObject({ service_bytes: count, owners_bytes: count, hypervisors_bytes: count }),
});
export type ServiceStats = z.infer<typeof serviceStats>;

/** "30s", "10m", "2h", "7d" back from now, or an ISO time with its offset. */
export const since = z.union([
  z.string().regex(/^[1-9][0-9]{0,5}[smhd]$/, "a span such as 30s, 10m, 2h or 7d, or an ISO time"),
  z.iso.datetime({ offset: true }),
]);

/** An abnormal end of one of our processes: an uncaught error, a signal, a refused self-test. */
export const panic = z.strictObject({
  process: z.string(),
  pid: z.number().int(),
  time: z.string(),
  message: z.string(),
  location: z.string().nullable(),
  /** The first sixteen. */
  frames: z.array(z.string()),
});
export type Panic = z.infer<typeof panic>;

export const FINDING_KINDS = ["panic", "vm_failed", "server_error", "lane_reset", "slow"] as const;

/** One thing worth a look, the worst first. */
export const finding = z.strictObject({
  kind: z.enum(FINDING_KINDS),
  time: z.string(),
  vm_id: vmId.nullable(),
  title: z.string(),
  detail: z.string(),
  /** How often it was seen in the asked time; `time` is the last. */
  count: z.number().int().positive(),
});
export type Finding = z.infer<typeof finding>;

/** Sources of host logs that exist now; later processes bring theirs (design, "Words that need one meaning"). */
export const HOST_LOG_SOURCES = [
  "service",
  "gateway",
  "owner",
  "ledger",
  "proxy",
  "egress",
  "aggregator",
  "builtin",
] as const;
export type HostLogSource = (typeof HOST_LOG_SOURCES)[number];

const whole = z.coerce.number().int();
export const LOG_LINES_MAX = 10_000;
export const LOG_BYTES_MAX = 1_048_576;
const logLimits = {
  /** The last lines. */
  tail: whole.min(0).max(LOG_LINES_MAX).optional(),
  /** Plain text that a line must hold. */
  grep: z.string().min(1).max(256).optional(),
  max_bytes: whole.min(1).max(LOG_BYTES_MAX).optional(),
};
export const hostLogQuery = z.strictObject(logLimits);
export const logQuery = z.strictObject({
  source: z.enum(["console", "guest", "owner"]).optional(),
  ...logLimits,
});
export const logWindow = z.strictObject({ lines: z.array(z.string()), truncated: z.boolean() });
export type LogWindow = z.infer<typeof logWindow>;
