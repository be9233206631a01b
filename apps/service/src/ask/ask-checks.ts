import { apiFailure, type askResolution } from "@capsem/api";
import type * as z from "zod";
import type { AskRecord } from "./ask-record.ts";
import type { AskedEvent } from "./ask-row.ts";
import { ASK_LIMITS } from "./limits.ts";
import type { OpenAsk } from "./open-ask.ts";

export type Resolution = z.output<typeof askResolution>;

export interface NextAsk {
  /** Null: it is about none, or about one that is only being made. */
  readonly vmId: string | null;
  /** The client asks the person itself, and nothing waits for the ask. */
  readonly isLater: boolean;
  readonly who: Pick<AskedEvent["who"], "requester" | "client" | "token_id">;
}

/**
 * Throws Failure "quota" when too many wait for another one. Nobody takes the room of others: each VM, all that is about
 * no VM, each requester, and all asks that hold no call have their share.
 */
export function checkQuota(asks: readonly OpenAsk[], next: NextAsk): void {
  const waiting = asks.filter(({ isPending }) => isPending);
  const { waitingMax, waitingOfVmMax, waitingOfNoVmMax, waitingLaterMax, waitingOfRequesterMax } = ASK_LIMITS;
  const check = (what: string, most: number, isOfIt: (ask: OpenAsk) => boolean) => {
    const count = waiting.filter(isOfIt).length;
    if (count >= most) throw apiFailure("quota", `Cannot ask: ${count} asks${what} wait, limit ${most}`);
  };
  check("", waitingMax, () => true);
  const ofVm = (ask: OpenAsk) => (ask.isOfLivingVm ? ask.record.ask.vm_id : null) === next.vmId;
  if (next.vmId === null) check(" about no VM", waitingOfNoVmMax, ofVm);
  else check(" of this VM", waitingOfVmMax, ofVm);
  if (next.isLater) check(" that hold no call", waitingLaterMax, ({ calls }) => calls.length === 0);
  check(" of this requester", waitingOfRequesterMax, ({ record: { ask, token_id } }) => {
    const { requester, client } = next.who;
    // Guests of all VMs are called the same.
    if (requester === "guest" && ask.vm_id !== next.vmId) return false;
    return ask.requester === requester && ask.client === client && token_id === next.who.token_id;
  });
}

/** Throws Failure "invalid_input" for a denial with a scope, "wrong_state" for a VM's where there is none. */
export function checkScope({ approve, scope }: Resolution, { record, isOfLivingVm }: OpenAsk): void {
  if (!approve && scope !== undefined) {
    throw apiFailure("invalid_input", "Cannot deny an ask with a scope: only an approval has one");
  }
  if (scope === "vm" && (!isOfLivingVm || record.only_once !== null)) {
    const noVm = record.ask.vm_id === null ? "it is about none" : "the VM is only being made";
    const why = isOfLivingVm ? record.only_once : noVm;
    throw apiFailure("wrong_state", `Cannot approve "${record.ask.id}" for its VM: ${why}`);
  }
}

/** What whoever comes second is told. */
export function alreadyOver({ ask }: AskRecord): Error {
  const by = ask.resolver === null ? "" : ` by ${ask.resolver}`;
  const why = ask.state === "expired" && ask.note !== null ? ` (${ask.note})` : "";
  const state = ask.state === "expired" ? "it expired" : `it was ${ask.state}`;
  return apiFailure(
    "wrong_state",
    `Cannot resolve ask "${ask.id}": ${state}${by} at ${ask.resolved_at}${why}`,
  );
}
