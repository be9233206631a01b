import type { Client } from "@capsem/sdk";
import type { Args } from "./args.ts";
import type { Output } from "./output.ts";
import type { Powers } from "./powers.ts";
import type { GivenEvent } from "./rule-event.ts";

/** What a command gets. The client is made, and the service started, by the first call of `client`. */
export interface Context {
  readonly powers: Powers;
  readonly output: Output;
  readonly json: boolean;
  readonly client: () => Promise<Client>;
  /** A call of that client waits for a person's answer, and says so itself. */
  readonly isHeld: () => boolean;
  /** Ids of VMs that the user named, with that name: errors speak of the name. */
  readonly names: Map<string, string>;
  /** The act under way in the words of rules, where what was typed does not say it: a refusal is asked about by it. */
  readonly tried: { event: GivenEvent | null };
}

/** Returns the exit code. */
export type Handler = (context: Context, args: Args) => Promise<number>;
