import { type PolicyLayer, type PolicySnapshot, renderLayer, withoutHeaderValues } from "@capsem/policy";
import type { PolicyState } from "../policy/policy-state.ts";
import type { KnownRules } from "./fact-rows.ts";
import { FACT_LIMITS } from "./limits.ts";

/** Rules as a proxy gets them: what it comes to is what the service has. */
export interface PushedRules {
  readonly user: string;
  readonly corp: string;
  readonly digest: string;
}

/** The rules that proxies were given: as texts for the next one, and as what their last decisions were made by. */
export class SnapshotBook implements KnownRules {
  readonly #state: () => PolicyState;
  readonly #known = new Map<string, PolicySnapshot>();
  #pushed: { readonly of: PolicyState; readonly rules: PushedRules } | null = null;

  constructor(state: () => PolicyState) {
    this.#state = state;
  }

  of(digest: string): PolicySnapshot | null {
    return this.#known.get(digest) ?? null;
  }

  /** Those in force now. */
  rules(): PushedRules {
    const of = this.#state();
    if (this.#pushed?.of !== of) {
      const { snapshot, user, corp } = of;
      this.#keep(snapshot);
      const rules = { user: textOf(user.whole), corp: textOf(corp.whole), digest: snapshot.digest };
      this.#pushed = { of, rules };
    }
    return this.#pushed.rules;
  }

  #keep(snapshot: PolicySnapshot): void {
    this.#known.delete(snapshot.digest);
    this.#known.set(snapshot.digest, snapshot);
    const [oldest] = this.#known.keys();
    if (this.#known.size > FACT_LIMITS.snapshotsKept && oldest !== undefined) this.#known.delete(oldest);
  }
}

/** What a proxy must not know is not in it, and no decision depends on it. */
function textOf(layer: PolicyLayer): string {
  const servers = new Map([...layer.servers].map(([name, server]) => [name, withoutHeaderValues(server)]));
  return renderLayer({ ...layer, servers });
}
