import { JOB_ID_PATTERN, NAME_PATTERN, VM_ID_PATTERN } from "@capsem/base";
import * as z from "zod";
import { VM_REASONS, VM_STATES } from "./vm-state.ts";

export * from "./vm-state.ts";

export const vmId = z.string().regex(VM_ID_PATTERN, "vm_ and 16 characters of a-z2-7");
export const jobId = z.string().regex(JOB_ID_PATTERN, "job_ and 16 characters of a-z2-7");
export const vmName = z.string().regex(NAME_PATTERN, "a lower-case letter, then up to 62 of a-z, 0-9 and -");
export const cpus = z.number().int().min(1).max(64);
/** GiB, in steps of a quarter. */
export const memoryGib = z.number().min(0.25).max(64).multipleOf(0.25);
/** Name to value. The refusals (LD_*, IFS …) are the environment table's: see env-table.ts. */
export const env = z.record(z.string(), z.string());

export const vmInfo = z.strictObject({
  id: vmId,
  /** Null: a temporary VM, destroyed when it stops. */
  name: vmName.nullable(),
  state: z.enum(VM_STATES),
  /** Why the VM is stopped or failed, when nobody asked for it. */
  reason: z.enum(VM_REASONS).nullable(),
  /** `unresponsive`: three pings of a second were missed. Null: not running. */
  health: z
    .strictObject({ owner: z.enum(["ok", "unresponsive"]), guest: z.enum(["ok", "unresponsive"]) })
    .nullable(),
  cpus,
  memory_gib: memoryGib,
  created_at: z.string(),
  started_at: z.string().nullable(),
  image: z.string(),
  env_names: z.array(z.string()),
  disk: z.strictObject({
    allocated_bytes: z.number().int().nonnegative(),
    allocated_bytes_max: z.number().int().positive(),
  }),
  /** The last lines of the console and the owner's log, for a VM that failed. */
  log_tail: z.array(z.string()).optional(),
});
export type VmInfo = z.infer<typeof vmInfo>;

export const createRequest = z.strictObject({
  name: vmName.optional(),
  cpus: cpus.optional(),
  memory_gib: memoryGib.optional(),
  env: env.optional(),
});
export type CreateRequest = z.infer<typeof createRequest>;

/** stdin, stdout or stderr as JSON: utf8 when the bytes are valid UTF-8, else base64. */
export const streamData = z.strictObject({
  encoding: z.enum(["utf8", "base64"]),
  data: z.string(),
  /** The first bytes were kept, the rest was dropped. */
  truncated: z.boolean(),
  /** Of a truncated stream: all bytes that the command wrote. */
  total_bytes: z.number().int().nonnegative().optional(),
});
export type StreamData = z.infer<typeof streamData>;

const commandShape = {
  /** A line for `bash -c`. Exactly one of `command` and `argv`. */
  command: z.string().min(1).optional(),
  argv: z.array(z.string()).min(1).max(1024).optional(),
  user: z.enum(["user", "root"]).optional(),
  /** Relative to /workspace, which is the default. */
  cwd: z.string().min(1).max(4095).optional(),
  env: env.optional(),
  /** Bounds the work in the guest; the job's whole process tree is killed. */
  timeout_secs: z.number().positive().max(86_400).optional(),
};
const oneCommand = (request: { command?: string | undefined; argv?: string[] | undefined }) =>
  (request.command === undefined) !== (request.argv === undefined);
const oneCommandText = "exactly one of command and argv";

export const execRequest = z
  .strictObject({
    ...commandShape,
    stdin: z
      .strictObject({ encoding: z.enum(["utf8", "base64"]), data: z.string().max(1_500_000) })
      .optional(),
  })
  .refine(oneCommand, oneCommandText);
export type ExecRequest = z.infer<typeof execRequest>;

export const runRequest = z
  .strictObject({
    ...commandShape,
    cpus: cpus.optional(),
    memory_gib: memoryGib.optional(),
    vm_env: env.optional(),
  })
  .refine(oneCommand, oneCommandText);
export type RunRequest = z.infer<typeof runRequest>;

export const terminalSize = z.strictObject({
  cols: z.number().int().min(1).max(4096),
  rows: z.number().int().min(1).max(4096),
});

/** The `start` message of capsem.stream.v1. */
export const streamStart = z
  .strictObject({
    ...commandShape,
    type: z.literal("start"),
    kind: z.enum(["exec", "terminal"]),
    stdin: z.boolean().optional(),
    terminal: terminalSize.optional(),
  })
  .refine((start) => start.kind === "terminal" || oneCommand(start), oneCommandText);
export const streamClient = z.union([
  streamStart,
  z.strictObject({ type: z.literal("attach"), job_id: jobId, offset: z.number().int().nonnegative() }),
  z.strictObject({ type: z.literal("resize"), terminal: terminalSize }),
  z.strictObject({ type: z.literal("signal"), signal: z.number().int().min(1).max(64) }),
  z.strictObject({ type: z.literal("close_stdin") }),
]);
export type StreamClientMessage = z.infer<typeof streamClient>;

const jobEnd = {
  exit_code: z.number().int().min(0).max(255).nullable(),
  signal: z.number().int().nullable(),
  timed_out: z.boolean(),
  out_of_memory: z.strictObject({ limit_bytes: z.number(), peak_bytes: z.number() }).nullable(),
};
export const streamServer = z.union([
  z.strictObject({
    type: z.literal("started"),
    job_id: jobId,
    /** Where the bytes that follow begin. */ offset: z.number().int().nonnegative(),
  }),
  z.strictObject({ type: z.literal("exit"), ...jobEnd, truncated: z.boolean(), agent_us: z.number() }),
  z.strictObject({
    type: z.literal("error"),
    error: z.strictObject({
      kind: z.string(),
      reason: z.string(),
      status: z.number(),
      retryable: z.boolean(),
      /** As in every error of the API: where a rule refused, what a person is asked, faults of a file or an edit. */
      rule_id: z.string().optional(),
      ask_id: z.string().optional(),
      faults: z.array(z.record(z.string(), z.unknown())).optional(),
    }),
  }),
]);
export type StreamServerMessage = z.infer<typeof streamServer>;

export const execResult = z.strictObject({
  job_id: jobId,
  ...jobEnd,
  stdout: streamData,
  stderr: streamData,
  duration_ms: z.number(),
  /** The part of it that the guest agent measured. */
  agent_ms: z.number(),
});
export type ExecResult = z.infer<typeof execResult>;

export const jobInfo = z.strictObject({
  id: jobId,
  state: z.enum(["running", "done"]),
  ...jobEnd,
  /** What was asked for, without the environment. */
  command: z.array(z.string()),
  started_at: z.string(),
  ended_at: z.string().nullable(),
  stdout_bytes: z.number(),
  stderr_bytes: z.number(),
  /** Bytes of stdout and stderr together, in the order they came: what is kept is first_offset..end_offset. */
  first_offset: z.number(),
  end_offset: z.number(),
  truncated: z.boolean(),
});
export type JobInfo = z.infer<typeof jobInfo>;
