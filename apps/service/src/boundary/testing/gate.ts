import { randomBytes } from "node:crypto";
import { Failure } from "@capsem/base";
import type { Decision } from "@capsem/policy";
import { SecretRedactor } from "../../credential/redactor.ts";
import { createBoundary } from "../boundary.ts";
import { commandDraft } from "../command-draft.ts";
import { FakeAsks, FakeLedger, FakePolicy } from "./fake-parts.ts";

export const VM = { id: "vm_abcdefghij234567", name: "box", image: "sha256:aa" };
export const JOB = "job_abcdefghij234567";
export const EXEC = commandDraft(VM, JOB, "exec", { command: "make test", env: { TOKEN: "hidden-value" } });

/** A boundary with fakes around it. */
export function gate() {
  const parts = { policy: new FakePolicy(), ledger: new FakeLedger(), asks: new FakeAsks() };
  const redactor = new SecretRedactor();
  const log: Record<string, unknown>[] = [];
  const clock = { ms: 0 };
  const boundary = createBoundary({
    ...parts,
    redactor,
    nowMs: () => 1_000,
    monotonicMs: () => clock.ms,
    random: randomBytes,
    log: (level, message, fields = {}) => void log.push({ level, message, ...fields }),
    digestKey: Buffer.alloc(32, 1),
  });
  return { ...parts, redactor, boundary, log, clock };
}

/** What a call came to. */
export async function outcomeOf(call: Promise<unknown>) {
  try {
    return { value: await call };
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    const { kind, message, facts, retryable } = thrown;
    return { kind, message, facts, retryable };
  }
}

export const ALLOWED = decisionOf("allow", "posture.developer");

export function decisionOf(action: Decision["action"], rule_id: string): Decision {
  const explanation = { matched: [], why: "no_rule" as const, allowed: [] };
  return { action, rule_id, reason: "", detection: "none", changes: [], explanation };
}
