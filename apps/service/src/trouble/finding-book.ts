import { ERRORS, type ErrorKind, type Finding } from "@capsem/api";
import type { Failure } from "@capsem/base";
import type { ActEvent, ActObserver } from "../act.ts";
import { TROUBLE_LIMITS } from "../limits.ts";
import { PROMISED_MS } from "./promise-table.ts";

/** What a golden is made for. */
const STARTS_VMS: ReadonlySet<string> = new Set(["create", "start", "run overhead"]);

type Kind = Exclude<Finding["kind"], "panic">;

interface Sighting {
  readonly atMs: number;
  readonly vmId: string | null;
  readonly detail: string;
}

interface Group {
  readonly kind: Kind;
  readonly title: string;
  /** The latest last. */
  readonly sightings: Sighting[];
  total: number;
}

export interface FindingRequest {
  readonly sinceMs: number | null;
  readonly vmId: string | null;
}

/**
 * What went wrong lately, in memory: alike things are one group, of which the last sightings are kept. Bounded
 * however much goes wrong.
 */
export class FindingBook implements ActObserver {
  readonly #nowMs: () => number;
  readonly #redact: (text: string) => string;
  /** In order of their last sighting, the latest last. */
  readonly #groups = new Map<string, Group>();

  #preparedAtMs = Number.NEGATIVE_INFINITY;

  /** `redact` replaces secrets, before a cut could leave half of one. */
  constructor(nowMs: () => number, redact: (text: string) => string = (text) => text) {
    this.#nowMs = nowMs;
    this.#redact = redact;
  }

  add(kind: Kind, vmId: string | null, title: string, detail: string): void {
    const name = this.#redact(title).slice(0, TROUBLE_LIMITS.titleCharactersMax);
    const key = `${kind} ${name}`;
    const group = this.#groups.get(key) ?? { kind, title: name, sightings: [], total: 0 };
    group.total += 1;
    group.sightings.push({
      atMs: this.#nowMs(),
      vmId,
      detail: this.#redact(detail).slice(0, TROUBLE_LIMITS.detailCharactersMax),
    });
    if (group.sightings.length > TROUBLE_LIMITS.sightingsMax) group.sightings.shift();
    this.#groups.delete(key);
    this.#groups.set(key, group);
    if (this.#groups.size <= TROUBLE_LIMITS.groupsMax) return;
    const [quietest] = this.#groups.keys();
    if (quietest !== undefined) this.#groups.delete(quietest);
  }

  began(): void {
    // Only an end shows what went wrong.
  }

  ended({ route, vmId }: ActEvent, durationMs: number, failure: Failure<ErrorKind> | null): void {
    if (failure === null) this.slow(route, durationMs, vmId);
    else if (ERRORS[failure.kind].status >= 500) {
      this.add("server_error", vmId, `${route} failed: ${failure.kind}`, failure.detail ?? failure.message);
    }
  }

  /** A golden was built just now: whatever began before waited for it or for the machine, which happens once. */
  prepared(): void {
    this.#preparedAtMs = this.#nowMs();
  }

  /** Notes what took longer than its promise; what has none is never slow. */
  slow(what: string, durationMs: number, vmId: string | null): void {
    const promisedMs = PROMISED_MS[what];
    if (promisedMs === undefined || durationMs <= promisedMs) return;
    if (STARTS_VMS.has(what) && this.#nowMs() - durationMs <= this.#preparedAtMs) return;
    this.add(
      "slow",
      vmId,
      `${what} took longer than ${promisedMs} ms`,
      `it took ${Math.round(durationMs)} ms`,
    );
  }

  shown({ sinceMs, vmId }: FindingRequest): Finding[] {
    return [...this.#groups.values()].flatMap((group) => {
      const seen = group.sightings.filter(
        (each) => (sinceMs === null || each.atMs >= sinceMs) && (vmId === null || each.vmId === vmId),
      );
      const last = seen.at(-1);
      if (last === undefined) return [];
      const isWhole = seen.length === group.sightings.length && vmId === null;
      const isOneVm = seen.every((each) => each.vmId === last.vmId);
      return {
        kind: group.kind,
        time: new Date(last.atMs).toISOString(),
        vm_id: isOneVm ? last.vmId : null,
        title: group.title,
        detail: last.detail,
        // Those before the kept ones count while nobody asks for less.
        count: isWhole && sinceMs === null ? group.total : seen.length,
      };
    });
  }
}
