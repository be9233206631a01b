import type { VmReason } from "@capsem/api";
import { type Deferred, defer } from "@capsem/base";
import type { VmLogs } from "../log/vm-logs.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { VmRecord } from "./record.ts";

/** A VM in memory. Only the lifecycle writes `record` and `run`; everybody else reads. */
export class Vm {
  record: VmRecord;
  /** The living owner, from its spawn to its loss. */
  run: OwnerRun | null = null;
  logs: VmLogs | null = null;
  /** The disk and the owner's own folder. */
  diskAllocatedBytes = 0;
  /** Files and folders in the owner's own folder. */
  jobEntries = 0;
  /** Acts under way, and when the last one ended: for the idle limit. */
  activeCount = 0;
  lastActiveMs: number;
  /** On the monotonic clock of this service: when it came to run, and when it failed. Null: not in this service's life. */
  startedMs: number | null = null;
  failedMs: number | null = null;
  /** Of its logs, when it failed in an earlier service. */
  keptTail: readonly string[] = [];
  /** False: `record` is a stand-in, and what the disk has must not be written over. */
  readonly isRecordReadable: boolean;
  /** Start, stop and removal under way: a second request joins the first. */
  starting: Promise<void> | null = null;
  stopping: Promise<void> | null = null;
  removing: Promise<void> | null = null;
  /** The last change of its name: the next one follows it. */
  renaming: Promise<void> | null = null;
  /** It has its name, and whether that holds is not known yet. */
  persisting: Promise<void> | null = null;
  /** The end of the processes of the last owner: the next start waits for it. */
  dying: Promise<unknown> | null = null;
  /** Aborted when the start under way is no longer wanted. */
  startAbort: AbortController | null = null;
  /** Resolves with the reason when the VM has ended for good or lost its owner: for held creates. */
  readonly ended: Deferred<VmReason | null> = defer();

  constructor(record: VmRecord, nowMs: number, isRecordReadable = true) {
    this.record = record;
    this.isRecordReadable = isRecordReadable;
    this.lastActiveMs = nowMs;
  }

  get id(): string {
    return this.record.id;
  }

  /** One whose record cannot be read may be somebody's: it is never taken away unasked. */
  get isRetained(): boolean {
    return this.record.name !== null || !this.isRecordReadable;
  }
}
