import { within } from "@capsem/base";
import type { Account } from "./accounts.ts";
import { findAccount } from "./accounts.ts";
import { fileFailure, guestFailure } from "./guest-error.ts";
import { encodeHelperRequest, type HelperReport, type HelperRequest } from "./helper-protocol.ts";
import { GUEST_LIMITS } from "./limits.ts";
import type { Workload } from "./workload.ts";
import type { Zygote } from "./zygote.ts";
import type { ZygotePool } from "./zygote-pool.ts";

export type HelperOperation = Omit<HelperRequest, "init" | "uid" | "gid" | "groups">;

/** One operation by one helper, inside the workload root, with the rights of a user there. */
export class HelperCall {
  readonly #workload: Workload;
  readonly #pool: ZygotePool;

  constructor(workload: Workload, pool: ZygotePool) {
    this.#workload = workload;
    this.#pool = pool;
  }

  account(name = "user"): Account {
    return findAccount(this.#workload.root, name);
  }

  /** `work` owns the helper while it runs; it is closed then on every path. */
  async run<T>(operation: HelperOperation, work: (zygote: Zygote) => Promise<T>): Promise<T> {
    const { uid, gid, groups } = this.account();
    const request = encodeHelperRequest({ ...operation, init: this.#workload.initPid(), uid, gid, groups });
    const zygote = await this.#pool.request(request);
    try {
      return await work(zygote);
    } finally {
      zygote.close();
      this.#pool.rest();
    }
  }

  /** An operation without bytes: `ok` or a Failure that says what could not be done to `path`. */
  async simple(operation: HelperOperation, verb: string, path: string): Promise<void> {
    await this.run(operation, (zygote) => expectReport(zygote, "ok", verb, path));
  }
}

type ReportOf<K extends HelperReport["kind"]> = Extract<HelperReport, { kind: K }>;

/** The next report, which must be of this kind, or of one of these. */
export async function expectReport<K extends Exclude<HelperReport["kind"], "error">>(
  zygote: Zygote,
  kinds: K | readonly K[],
  verb: string,
  path: string,
): Promise<ReportOf<K>> {
  const report = await within(zygote.reports.report(), GUEST_LIMITS.fileReportTimeoutMs, () =>
    guestFailure("internal", `Cannot ${verb}: the helper did not answer`),
  );
  if (report === null) throw guestFailure("internal", `Cannot ${verb}: the helper ended`);
  if (report.kind === "error") throw fileFailure(report, verb, path);
  const expected: readonly string[] = typeof kinds === "string" ? [kinds] : kinds;
  if (!expected.includes(report.kind)) {
    throw guestFailure("internal", `Cannot ${verb}: ${report.kind} came first`);
  }
  return report as ReportOf<K>;
}
