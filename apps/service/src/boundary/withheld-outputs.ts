import { apiFailure, toApiFailure } from "@capsem/api";
import { type Deferred, defer } from "@capsem/base";
import type { OwnerRun } from "../owner/owner-run.ts";
import { BOUNDARY_LIMITS } from "./limits.ts";

/** A job whose output nobody gets before it was judged. Whoever holds it says how that ended, once. */
export interface HeldOutput {
  /** The job has ended and is judged now. The signal fires when the last of those who wait for its output leaves. */
  judging(): AbortSignal;
  free(): void;
  withhold(why: unknown): void;
}

type Job = { readonly state: "withheld"; readonly failure: Error } | Unjudged;
interface Unjudged {
  readonly state: "unjudged";
  readonly judged: Deferred<void>;
  /** Who waits for it. */
  readers: number;
  judging: AbortController | null;
}

/**
 * Jobs whose output is not given, by whatever route: those that are not judged yet, and those that were and are
 * withheld. What is free is not in here. They live as long as their owner does, which has the bytes.
 */
export class WithheldOutputs {
  readonly #jobs = new WeakMap<OwnerRun, Map<string, Job>>();

  /** Before the job starts, so that nobody is earlier. */
  hold(run: OwnerRun, job: string): HeldOutput {
    const held: Unjudged = { state: "unjudged", judged: defer(), readers: 0, judging: null };
    this.#of(run).set(job, held);
    return {
      judging() {
        held.judging = new AbortController();
        return held.judging.signal;
      },
      free: () => {
        this.#of(run).delete(job);
        held.judged.resolve();
      },
      withhold: (why) => {
        this.withhold(run, job, why);
        held.judged.resolve();
      },
    };
  }

  withhold(run: OwnerRun, job: string, why: unknown): void {
    const jobs = this.#of(run);
    jobs.delete(job);
    jobs.set(job, { state: "withheld", failure: failureOf(job, why) });
    if (jobs.size <= BOUNDARY_LIMITS.withheldJobsMax) return;
    // The oldest is long forgotten by its owner.
    for (const [id, { state }] of jobs) {
      if (state !== "withheld") continue;
      jobs.delete(id);
      return;
    }
  }

  /** Throws where it is withheld. */
  isUnjudged(run: OwnerRun, job: string): boolean {
    const found = this.#jobs.get(run)?.get(job);
    if (found?.state === "withheld") throw found.failure;
    return found !== undefined;
  }

  /** Resolves when the output may be given, as long as its job takes. Throws why it may not, or "cancelled". */
  async released(run: OwnerRun, job: string, signal: AbortSignal): Promise<void> {
    const found = this.#jobs.get(run)?.get(job);
    if (found?.state === "unjudged") await waitFor(found, signal);
    this.isUnjudged(run, job);
  }

  #of(run: OwnerRun): Map<string, Job> {
    const jobs = this.#jobs.get(run) ?? new Map<string, Job>();
    this.#jobs.set(run, jobs);
    return jobs;
  }
}

async function waitFor(held: Unjudged, signal: AbortSignal): Promise<void> {
  const left = defer<void>();
  const onAbort = () => left.resolve();
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  held.readers += 1;
  try {
    await Promise.race([held.judged.promise, left.promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
    held.readers -= 1;
    if (held.readers === 0) held.judging?.abort();
  }
  if (signal.aborted) throw apiFailure("cancelled", "Cannot give the output: its reader has left");
}

/** What the first who waited is told, and each who comes later. */
function failureOf(job: string, why: unknown): Error {
  const failure = toApiFailure(why);
  if (failure.kind === "policy") return failure;
  const text = `Cannot give the output of job "${job}", which could not be judged: ${failure.message}`;
  return apiFailure(failure.kind, text);
}
