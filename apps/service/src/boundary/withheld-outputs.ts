import { apiFailure } from "@capsem/api";
import type { OwnerRun } from "../owner/owner-run.ts";
import { BOUNDARY_LIMITS } from "./limits.ts";

/** Jobs whose output was judged and withheld: no other route gives it. They live as long as their owner does. */
export class WithheldOutputs {
  readonly #jobs = new WeakMap<OwnerRun, Set<string>>();

  withhold(run: OwnerRun, job: string): void {
    const jobs = this.#jobs.get(run) ?? new Set();
    this.#jobs.set(run, jobs);
    jobs.add(job);
    // The oldest is long forgotten by its owner.
    const [oldest] = jobs;
    if (jobs.size > BOUNDARY_LIMITS.withheldJobsMax && oldest !== undefined) jobs.delete(oldest);
  }

  check(run: OwnerRun, job: string): void {
    if (this.#jobs.get(run)?.has(job) === true) {
      throw apiFailure("policy", `Cannot give the output of job "${job}": it was judged, and is withheld`);
    }
  }
}
