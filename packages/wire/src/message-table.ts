/**
 * The only source of the control messages: number, direction, shape (wire spec, "Control messages").
 * The decoder's dispatch, the frozen schema file and the table in docs/protocol.md derive from it.
 * Numbers are never reused; those of later messages are reserved below.
 */
import * as z from "zod";
import { MARKER_BYTES } from "./lane-hello.ts";
import { WIRE_LIMITS } from "./limits.ts";

const requestId = z.string().min(1).max(64);
const jobId = z.string().regex(/^[a-z0-9_]{1,64}$/);
const path = z.string().min(1).max(WIRE_LIMITS.pathBytesMax);
const count = z.number().int().nonnegative().max(Number.MAX_SAFE_INTEGER);
const bytes = z.custom<Uint8Array>((value) => value instanceof Uint8Array, "bytes");
const marker = z.custom<Uint8Array>(
  (value) => value instanceof Uint8Array && value.length === MARKER_BYTES,
  `${MARKER_BYTES} bytes`,
);
/** Milliseconds since 1970 with a fraction: a double keeps microseconds until 2255. */
const clockMs = z.number().positive();
const envEntries = z.array(z.string().max(WIRE_LIMITS.envEntryBytesMax)).max(4096);
const terminal = z.strictObject({
  cols: z.number().int().min(1).max(4096),
  rows: z.number().int().min(1).max(4096),
});
/** `user` (uid 1000, the default) or `root`, resolved in the workload root. */
const user = z.string().regex(/^[a-z_][a-z0-9_-]{0,31}$/);

/** Operating errors that the guest agent answers with. The API uses the same words. */
export const GUEST_ERROR_KINDS = [
  "invalid_input",
  "wrong_state",
  "too_large",
  "file_not_found",
  "file_exists",
  "file_wrong_type",
  "file_not_permitted",
  "file_failed",
  "disk_full",
  "job_not_found",
  "command_not_found",
  "command_not_executable",
  "quota",
  "internal",
] as const;
export type GuestErrorKind = (typeof GUEST_ERROR_KINDS)[number];

export const FILE_TYPES = ["file", "directory", "symlink", "other"] as const;
const fileEntry = z.strictObject({
  /** Relative to the listed directory; "." for a stat. Bytes that are not UTF-8 become U+FFFD and `lossy`. */
  name: z.string().max(WIRE_LIMITS.pathBytesMax),
  type: z.enum(FILE_TYPES),
  size: count,
  mode: z.number().int().min(0).max(0o7777),
  mtime_ms: z.number(),
  uid: count,
  gid: count,
  target: z.string().optional(),
  lossy: z.boolean().optional(),
});
export type FileEntry = z.infer<typeof fileEntry>;

export const HOST_MESSAGES = {
  /** After every start and restore, before the workload runs. Answered by `ack`. `entropy` is 64 random bytes. */
  boot_config: {
    number: 1,
    schema: z.strictObject({
      id: requestId,
      clock_ms: clockMs,
      entropy: bytes,
      hostname: z.string().regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/),
      machine_id: z.string().regex(/^[0-9a-f]{32}$/),
      trace: z.string().max(128).optional(),
    }),
  },
  /** The VM's own environment: `size` bytes of MessagePack [string] on port 5009, tag = id. Answered by `ack`. */
  set_env: {
    number: 2,
    schema: z.strictObject({
      id: requestId,
      size: z
        .number()
        .int()
        .min(1)
        .max(WIRE_LIMITS.envBytesMax + 65_536),
    }),
  },
  /** Mount the writable disk, build the workload root, start the workload's namespaces. Answered by `ack`. */
  mount_disk: { number: 4, schema: z.strictObject({ id: requestId, capacity_bytes: count.optional() }) },
  /** Answered by `job_started` and later `job_done`, or `error`. Its bytes ride on port 5005, tag = job. */
  job_start: {
    number: 5,
    schema: z.strictObject({
      id: requestId,
      job: jobId,
      /** Either a command line for `bash -c` or an argument vector. */
      command: z.string().max(WIRE_LIMITS.argvBytesMax).optional(),
      argv: z.array(z.string()).min(1).max(1024).optional(),
      user: user.optional(),
      cwd: path.optional(),
      env: envEntries.optional(),
      stdin: z.boolean(),
      time_left_ms: z.number().int().positive().optional(),
      terminal: terminal.optional(),
    }),
  },
  /** `signal` is the Linux number. `tree` also reaches what left the process group (cgroup.kill; 9 alone). */
  job_signal: {
    number: 6,
    schema: z.strictObject({
      id: requestId,
      job: jobId,
      signal: z.number().int().min(1).max(64),
      tree: z.boolean(),
    }),
  },
  job_resize: { number: 7, schema: z.strictObject({ id: requestId, job: jobId, terminal }) },
  ping: { number: 8, schema: z.strictObject({ sequence: count, clock_ms: clockMs.optional() }) },
  host_ack: { number: 9, schema: z.strictObject({ id: requestId }) },
  file_stat: { number: 10, schema: z.strictObject({ id: requestId, path, follow: z.boolean() }) },
  /** A page of a directory, names sorted by bytes; depth 1 is the directory's own entries. */
  file_list: {
    number: 11,
    schema: z.strictObject({
      id: requestId,
      path,
      offset: count,
      limit: z.number().int().min(1).max(WIRE_LIMITS.listEntriesMax),
      depth: z.number().int().min(1).max(16),
    }),
  },
  /** Answered by `file_answer` with the true size, then `length` bytes at most on port 5009, tag = id. */
  file_read: {
    number: 12,
    schema: z.strictObject({ id: requestId, path, offset: count, length: count.optional() }),
  },
  /** Bytes come on port 5009, tag = id, until its end; answered by `file_answer` when they are in place. */
  file_write: {
    number: 13,
    schema: z.strictObject({
      id: requestId,
      path,
      mode: z.number().int().min(0).max(0o777).optional(),
      offset: count.optional(),
      make_parents: z.boolean(),
    }),
  },
  file_mkdir: { number: 14, schema: z.strictObject({ id: requestId, path, parents: z.boolean() }) },
  file_rename: { number: 15, schema: z.strictObject({ id: requestId, path, to: path }) },
  file_remove: { number: 16, schema: z.strictObject({ id: requestId, path, recursive: z.boolean() }) },
  /** A tar stream on port 5009, tag = id, into the directory `path` (made when absent). */
  tree_in: { number: 17, schema: z.strictObject({ id: requestId, path }) },
  /** The directory `path` as a tar stream on port 5009, tag = id. */
  tree_out: { number: 18, schema: z.strictObject({ id: requestId, path }) },
  /**
   * Finish what is under way, refuse new work, drain the lanes, answer `ack`; then the VM is saved. `unmount` first
   * ends the workload and takes the disk away: a golden must not remember one.
   */
  prepare_snapshot: { number: 20, schema: z.strictObject({ id: requestId, unmount: z.boolean() }) },
  thaw: { number: 21, schema: z.strictObject({ id: requestId }) },
  /**
   * The traffic lane starts, or starts again, as this generation: its relay drops what it had and writes the marker.
   * Answered by `ack` when the relay has been told; the host waits for its hello by then.
   */
  reopen_traffic: {
    number: 22,
    schema: z.strictObject({
      id: requestId,
      marker,
      lane_generation: z.number().int().min(1).max(0xffff_ffff),
    }),
  },
  /** Kill the workload, sync, unmount, answer `ack`, power off. Never replayed. */
  shutdown: { number: 23, schema: z.strictObject({ id: requestId }) },
} as const;

export const GUEST_MESSAGES = {
  /** The agent stands; sent once a control stream. `boot` in milliseconds of the guest's uptime clock. */
  ready: {
    number: 65,
    schema: z.strictObject({
      agent_instance: z.string().regex(/^[0-9a-f]{16}$/),
      uptime_ms: z.number().nonnegative(),
      memory_total_bytes: count,
      cpus: z.number().int().positive(),
      clocksource: z.string().max(64),
      mounted: z.boolean(),
    }),
  },
  job_started: { number: 66, schema: z.strictObject({ id: requestId, job: jobId }) },
  /** The job's own process ended. `stdout_bytes` and `stderr_bytes` were sent on port 5005 before this. */
  job_done: {
    number: 67,
    schema: z.strictObject({
      job: jobId,
      exit_code: z.number().int().min(0).max(255).optional(),
      signal: z.number().int().min(1).max(127).optional(),
      timed_out: z.boolean(),
      out_of_memory: z.strictObject({ limit_bytes: count, peak_bytes: count }).optional(),
      stdout_bytes: count,
      stderr_bytes: count,
      /** The agent's own clock from reading `job_start` to writing this. Last, so that it can be written last. */
      agent_us: count,
    }),
  },
  pong: {
    number: 68,
    schema: z.strictObject({ sequence: count, clock_ms: clockMs, workload_processes: count.optional() }),
  },
  ack: { number: 69, schema: z.strictObject({ id: requestId }) },
  file_answer: {
    number: 70,
    schema: z.strictObject({
      id: requestId,
      entry: fileEntry.optional(),
      entries: z.array(fileEntry).max(WIRE_LIMITS.listEntriesMax).optional(),
      /** Entries of the whole directory, or bytes of the whole file. */
      total: count.optional(),
      more: z.boolean().optional(),
      bytes: count.optional(),
    }),
  },
  error: {
    number: 72,
    schema: z.strictObject({ id: requestId, kind: z.enum(GUEST_ERROR_KINDS), message: z.string().max(2048) }),
  },
} as const;

/** Numbers that later messages have been promised; never used for anything else. */
export const RESERVED_NUMBERS: Readonly<Record<number, string>> = {
  3: "boot_file",
  19: "tree_remove",
  24: "publish",
  64: "hello (a frame, not a message)",
  71: "file_changed",
  73: "boot_timing",
};

export type HostMessageName = keyof typeof HOST_MESSAGES;
export type GuestMessageName = keyof typeof GUEST_MESSAGES;
export type HostMessage = {
  [K in HostMessageName]: { readonly name: K; readonly body: z.infer<(typeof HOST_MESSAGES)[K]["schema"]> };
}[HostMessageName];
export type GuestMessage = {
  [K in GuestMessageName]: { readonly name: K; readonly body: z.infer<(typeof GUEST_MESSAGES)[K]["schema"]> };
}[GuestMessageName];
export type HostBody<K extends HostMessageName> = z.infer<(typeof HOST_MESSAGES)[K]["schema"]>;
export type GuestBody<K extends GuestMessageName> = z.infer<(typeof GUEST_MESSAGES)[K]["schema"]>;
