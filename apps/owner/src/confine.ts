import type { Seal, SealReport, SealSubjects } from "@capsem/jail";
import type { OwnerPowers } from "./powers.ts";

/** Closes this process but for its hypervisor, and says how that went. */
export async function confine(
  seal: Seal,
  subjects: SealSubjects,
  { now, log }: Pick<OwnerPowers, "now" | "log">,
): Promise<SealReport> {
  const startedAt = now();
  const report = await seal.close(subjects);
  const { missing, probes, notes } = report;
  if (notes.length > 0) log("warning", "a second wall is missing", { notes });
  if (missing.length > 0) log("warning", "owner is not confined", { missing });
  else log("info", "owner confined", { probes: probes.length, took_ms: Math.round(now() - startedAt) });
  return report;
}
