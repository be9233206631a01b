import type { Slot } from "../pool/pool.ts";

/** A VM that is not there yet: its id and image are known, so that a create can be judged before it is begun. */
export interface CreatePlan {
  readonly id: string;
  readonly image: string;
  /** The prepared VM that it would become, whose id it has. */
  readonly slot: Slot | null;
  /** To be called on every path, whatever became of the create. */
  release(): void;
}
