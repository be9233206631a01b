import { apiFailure, type askResolution } from "@capsem/api";
import type * as z from "zod";
import type { AskRecord } from "./ask-record.ts";
import { ASK_LIMITS } from "./limits.ts";
import type { OpenAsk } from "./open-ask.ts";

export type Resolution = z.output<typeof askResolution>;

/** Throws Failure "quota" when too many wait for another one of this VM. */
export function checkQuota(asks: readonly OpenAsk[], vmId: string | null): void {
  const waiting = asks.filter(({ isPending }) => isPending);
  const ofVm = waiting.filter(({ record }) => record.ask.vm_id === vmId).length;
  const { waitingMax, waitingOfVmMax } = ASK_LIMITS;
  if (waiting.length >= waitingMax) {
    throw apiFailure("quota", `Cannot ask: ${waiting.length} asks wait, limit ${waitingMax}`);
  }
  if (vmId !== null && ofVm >= waitingOfVmMax) {
    throw apiFailure("quota", `Cannot ask: ${ofVm} asks of this VM wait, limit ${waitingOfVmMax}`);
  }
}

/** Throws Failure "invalid_input" for a scope that means nothing here. */
export function checkScope({ approve, scope }: Resolution, { record }: OpenAsk): void {
  if (!approve && scope !== undefined) {
    throw apiFailure("invalid_input", "Cannot deny an ask with a scope: only an approval has one");
  }
  if (scope === "vm" && record.ask.vm_id === null) {
    throw apiFailure("invalid_input", `Cannot approve "${record.ask.id}" for its VM: it is about none`);
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
