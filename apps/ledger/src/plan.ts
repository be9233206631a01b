import { type LedgerPlan, ledgerPlan } from "@capsem/api";
import type { PlanForm } from "@capsem/worker";

export const LEDGER_PLAN: PlanForm<LedgerPlan> = {
  name: "the ledger's plan",
  schema: ledgerPlan,
  fault: ({ channels, folder }) => {
    if (channels.length === 0) return "it has no channels";
    if (new Set(channels.map(({ fd }) => fd)).size < channels.length)
      return "two channels are one descriptor";
    return folder.startsWith("/") ? null : "its folder is no absolute path";
  },
};
