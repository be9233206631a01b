import type { Seal, SealReport } from "@capsem/jail";
import type { OwnerPowers } from "./powers.ts";

/** Closes this process but for its hypervisor, and says how that went. */
export async function confine(
  seal: Seal,
  hypervisorPid: number,
  { now, log }: Pick<OwnerPowers, "now" | "log">,
): Promise<SealReport> {
  const startedAt = now();
  const report = await seal.close(hypervisorPid);
  const { missing, probes } = report;
  if (missing.length > 0) log("warning", "owner is not confined", { missing });
  else log("info", "owner confined", { probes: probes.length, took_ms: Math.round(now() - startedAt) });
  return report;
}
