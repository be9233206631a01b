/**
 * The private contract between the service and an owner, over `rpc` on an inherited socket pair. The service
 * is the host role (even stream ids). Params and results are MessagePack of these shapes; job and file bytes
 * ride on the call's stream, which the service pipes without looking at it.
 */
import * as z from "zod";
import { VM_REASONS } from "./vm-state.ts";

const entries = z.array(z.string()).max(4096);
const terminal = z.strictObject({ cols: z.number().int(), rows: z.number().int() });

/** First message to an owner, as one JSON line on its stdin. Descriptor numbers are the owner's own. */
export const spawnPlan = z.strictObject({
  /** fork: from a golden. cold: a boot without one. golden: boot, warm, save, end. */
  kind: z.enum(["fork", "cold", "golden"]),
  vm_id: z.string(),
  cpus: z.number().int(),
  memory_mib: z.number().int(),
  accelerator: z.enum(["kvm", "hvf", "tcg"]),
  qemu_binary: z.string(),
  launcher: z.string(),
  /** The VM's user id where the service runs as root; null keeps the service's own. */
  uid: z.number().int().nullable(),
  /** The only folder that the owner may name a path in: vms/<id>. */
  folder: z.string(),
  descriptors: z.strictObject({
    rpc: z.number().int(),
    traffic: z.number().int(),
    kernel: z.number().int(),
    initrd: z.number().int(),
    root: z.number().int(),
    agent: z.number().int(),
    /** The VM's writable disk (qcow2), opened read-write; absent for a golden. */
    disk: z.number().int().exactOptional(),
    /** Sealed memfd with the golden's memory (fork), or the writable RAM file to be (golden). */
    memory: z.number().int().exactOptional(),
    /** The device state: read for a fork, written for a golden. */
    state: z.number().int().exactOptional(),
  }),
  /** A pool slot: warm up, then pause until `claim`. */
  pool: z.boolean(),
  disk_capacity_bytes: z.number().int(),
  /** Go on with whatever confinement this machine has, and say what is missing. */
  allow_unconfined: z.boolean(),
});
export type SpawnPlan = z.infer<typeof spawnPlan>;

const started = z.strictObject({ ready_ms: z.number() });
const jobEnd = z.strictObject({
  exit_code: z.number().nullable(),
  signal: z.number().nullable(),
  timed_out: z.boolean(),
  out_of_memory: z.strictObject({ limit_bytes: z.number(), peak_bytes: z.number() }).nullable(),
  agent_us: z.number(),
  stdout_bytes: z.number(),
  stderr_bytes: z.number(),
  truncated: z.boolean(),
});
export type OwnerJobEnd = z.infer<typeof jobEnd>;
const fileEntry = z.looseObject({
  name: z.string(),
  type: z.enum(["file", "directory", "symlink", "other"]),
  size: z.number(),
  mode: z.number(),
  mtime_ms: z.number(),
  uid: z.number(),
  gid: z.number(),
});
const ok = z.strictObject({});

/** stream "none": a plain call. "down": bytes owner → service after the answer. "up": service → owner before it. */
export const OWNER_METHODS = {
  /** The VM becomes a user's: clock, entropy and names are repaired, the environment set. Once a generation. */
  claim: { stream: "none", params: z.strictObject({ hostname: z.string(), env: entries }), result: started },
  /** End the guest in order; forced kills at once. The owner ends after its answer. */
  stop: { stream: "none", params: z.strictObject({ forced: z.boolean() }), result: ok },
  ping: { stream: "none", params: z.strictObject({}), result: z.strictObject({ guest_ms: z.number() }) },
  "job.start": {
    stream: "none",
    params: z.strictObject({
      job: z.string(),
      command: z.string().optional(),
      argv: z.array(z.string()).optional(),
      user: z.string().optional(),
      cwd: z.string().optional(),
      env: entries.optional(),
      stdin: z.boolean(),
      time_left_ms: z.number().optional(),
      terminal: terminal.optional(),
    }),
    result: ok,
  },
  "job.wait": { stream: "none", params: z.strictObject({ job: z.string() }), result: jobEnd },
  /**
   * Typed chunks ([u8 1|2][u32 BE length][bytes]) from `offset`; with `follow` until the job is done, or "output" until
   * nothing more of it can come, which is known some milliseconds before.
   */
  "job.read": {
    stream: "down",
    params: z.strictObject({
      job: z.string(),
      offset: z.number(),
      follow: z.union([z.boolean(), z.literal("output")]),
    }),
    result: z.strictObject({ offset: z.number(), truncated: z.boolean() }),
  },
  /** Raw stdin bytes; the stream's end closes stdin, a reset leaves it open. */
  "job.write": { stream: "up", params: z.strictObject({ job: z.string() }), result: ok },
  "job.signal": {
    stream: "none",
    params: z.strictObject({ job: z.string(), signal: z.number(), tree: z.boolean() }),
    result: ok,
  },
  "job.resize": { stream: "none", params: z.strictObject({ job: z.string(), terminal }), result: ok },
  "job.list": {
    stream: "none",
    params: z.strictObject({}),
    result: z.strictObject({ jobs: z.array(z.looseObject({ id: z.string() })) }),
  },
  "file.stat": { stream: "none", params: z.strictObject({ path: z.string() }), result: fileEntry },
  "file.list": {
    stream: "none",
    params: z.strictObject({ path: z.string(), depth: z.number(), offset: z.number(), limit: z.number() }),
    result: z.strictObject({ entries: z.array(fileEntry), total: z.number(), more: z.boolean() }),
  },
  "file.read": {
    stream: "down",
    params: z.strictObject({ path: z.string(), offset: z.number(), length: z.number().optional() }),
    result: z.strictObject({ size: z.number() }),
  },
  /** The caller sends bytes on the stream and ends it; then the owner sends one MessagePack {bytes} or {error} and ends. */
  "file.write": {
    stream: "up",
    params: z.strictObject({ path: z.string(), mode: z.number().optional(), offset: z.number().optional() }),
    result: ok,
  },
  "file.mkdir": {
    stream: "none",
    params: z.strictObject({ path: z.string(), parents: z.boolean() }),
    result: ok,
  },
  "file.rename": { stream: "none", params: z.strictObject({ path: z.string(), to: z.string() }), result: ok },
  "file.remove": {
    stream: "none",
    params: z.strictObject({ path: z.string(), recursive: z.boolean() }),
    result: ok,
  },
  "tree.read": { stream: "down", params: z.strictObject({ path: z.string() }), result: ok },
  "tree.write": { stream: "up", params: z.strictObject({ path: z.string() }), result: ok },
  /**
   * The guest starts the traffic lane as this generation, with its marker first; whoever has the far end waits for it
   * by then. Answered when the guest's relay has been told. Failures: wrong_state (the workload is not mounted),
   * unresponsive.
   */
  "traffic.open": {
    stream: "none",
    params: z.strictObject({
      marker: z.string().regex(/^[0-9a-f]{64}$/),
      generation: z.number().int().positive().max(0xffff_ffff),
    }),
    result: ok,
  },
} as const;
export type OwnerMethod = keyof typeof OWNER_METHODS;
export type OwnerParams<M extends OwnerMethod> = z.infer<(typeof OWNER_METHODS)[M]["params"]>;
export type OwnerResult<M extends OwnerMethod> = z.infer<(typeof OWNER_METHODS)[M]["result"]>;

/**
 * After an "up" stream's bytes the owner answers on the same stream with one of these, MessagePack, then ends.
 * A "down" stream that fails after its answer is reset.
 */
export const upEnd = z.union([
  z.strictObject({ bytes: z.number() }),
  z.strictObject({ error: z.strictObject({ kind: z.string(), message: z.string() }) }),
]);
export type UpEnd = z.infer<typeof upEnd>;

/** What an owner tells the service, as calls in the other direction. */
export const SERVICE_METHODS = {
  /** warm: a pool slot is paused and may be claimed. ready: a fork without pool stands, claim may come. saved: the golden is written. */
  "owner.ready": {
    params: z.strictObject({
      state: z.enum(["warm", "ready", "saved"]),
      uptime_ms: z.number(),
      hypervisor_pid: z.number().int(),
      /** What the owner could not be confined by, in words. Empty: nothing is missing. */
      unconfined: z.array(z.string()),
      /** Second walls that this machine does not offer, in words; the owner is confined without them. */
      notes: z.array(z.string()).default([]),
    }),
    result: ok,
  },
  "owner.health": { params: z.strictObject({ guest: z.enum(["ok", "unresponsive"]) }), result: ok },
  /**
   * The guest opened or closed its end of the traffic lane. Open: a program in it waits, at most 10 s, for a lane, and
   * whatever lane ran is over; `traffic.open` is the answer. It may come twice in a row, as much as a second late.
   */
  "owner.traffic": { params: z.strictObject({ is_open: z.boolean() }), result: ok },
  /** The last thing an owner says. */
  "owner.gone": {
    params: z.strictObject({ reason: z.enum(VM_REASONS).nullable(), detail: z.string() }),
    result: ok,
  },
} as const;
