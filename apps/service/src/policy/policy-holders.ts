import { Failure, ignore, messageOf, within } from "@capsem/base";
import type { PolicySnapshot } from "@capsem/policy";
import { POLICY_TIMES } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";

/** Whoever decides by a copy of the rules, in another process or on the disk. */
export interface PolicyHolder {
  readonly name: string;
  /** Resolves when nothing is decided by an older snapshot any more. `signal` aborts when it took too long. */
  accept(snapshot: PolicySnapshot, signal: AbortSignal): Promise<void>;
  /** It did not accept in time: ends whatever still decides by an older one. It is not told of changes any more. */
  replace(why: Failure): Promise<void>;
}

/** Tells every holder of a new snapshot, and waits until no old one decides anything. */
export class PolicyHolders {
  readonly #holders = new Set<PolicyHolder>();
  readonly #log: ServiceLog;

  constructor(log: ServiceLog) {
    this.#log = log;
  }

  /** From now on; a holder takes the snapshot of this moment by itself, afterwards. Returns how to leave. */
  add(holder: PolicyHolder): () => void {
    this.#holders.add(holder);
    return () => void this.#holders.delete(holder);
  }

  /** Never rejects. */
  async tell(snapshot: PolicySnapshot): Promise<void> {
    await Promise.all([...this.#holders].map((holder) => this.#tellOne(holder, snapshot)));
  }

  async #tellOne(holder: PolicyHolder, snapshot: PolicySnapshot): Promise<void> {
    const abort = new AbortController();
    try {
      await within(
        Promise.resolve().then(() => holder.accept(snapshot, abort.signal)),
        POLICY_TIMES.holderTimeoutMs,
      );
    } catch (thrown) {
      abort.abort();
      // One that left meanwhile holds nothing.
      if (this.#holders.delete(holder)) await this.#replace(holder, thrown);
    }
  }

  async #replace(holder: PolicyHolder, thrown: unknown): Promise<void> {
    const { name } = holder;
    const why = new Failure("policy_refused", `Cannot give "${name}" new rules: ${messageOf(thrown)}`);
    this.#log("warning", "a holder of rules is replaced", { name, cause: messageOf(thrown) });
    const replaced = Promise.resolve().then(() => holder.replace(why));
    ignore(replaced);
    try {
      await within(replaced, POLICY_TIMES.replaceTimeoutMs);
    } catch (failed) {
      this.#log("error", "a holder of rules cannot be replaced", { name, cause: messageOf(failed) });
    }
  }
}
