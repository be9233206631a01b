import type { WorkerPlan } from "@capsem/api";
import type { Log } from "@capsem/worker";
import type { Catalogs } from "./catalog/catalogs.ts";
import type { ServerBook } from "./catalog/server-book.ts";
import type { Facts } from "./facts.ts";
import type { Neighbour } from "./neighbour.ts";
import type { PolicyState } from "./policy-state.ts";
import type { ServiceLink } from "./service-link.ts";

/** What all of the rail stands on. */
export interface RailParts {
  /** Of this moment: a VM can be renamed. */
  readonly vm: WorkerPlan["vm"];
  /** Of this program, as clients read it. */
  readonly version: string;
  readonly policy: PolicyState;
  readonly facts: Facts;
  readonly book: ServerBook;
  readonly catalogs: Catalogs;
  readonly service: Pick<ServiceLink, "call">;
  readonly neighbours: Neighbours;
  readonly clock: Clock;
  readonly random: (bytes: number) => Uint8Array;
  readonly log: Log;
}

export interface Neighbours {
  readonly aggregator: Neighbour;
  readonly builtin: Neighbour;
}

export interface Clock {
  nowMs(): number;
  monotonicMs(): number;
}

/** Whose process serves it: ours are apart from the external ones. */
export function neighbourOf(neighbours: Neighbours, isExternal: boolean): Neighbour {
  return isExternal ? neighbours.aggregator : neighbours.builtin;
}
