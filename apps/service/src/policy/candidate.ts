import type { PolicyFaultInfo } from "@capsem/api";
import { compileSnapshot, type PolicyLayer, type PolicySnapshot, parseLayer } from "@capsem/policy";
import { faultInfo } from "./faults.ts";
import { readLayer } from "./layer-files.ts";
import { type PolicyState, sha256, stateOf } from "./policy-state.ts";

export type Candidate =
  | { readonly kind: "ok"; readonly snapshot: PolicySnapshot; readonly rules: number }
  | { readonly kind: "refused"; readonly faults: readonly PolicyFaultInfo[] };

/** The rules in force with other ones of the user's: what a person tries before it holds. Settings stay. */
export function withUserRules({ user, corp }: PolicyState, text: string): Candidate {
  const parsed = parseLayer("user", text, { rulesOnly: true });
  if (parsed.kind === "refused") {
    return { kind: "refused", faults: parsed.faults.map((fault) => faultInfo(fault, "rules")) };
  }
  const tried: PolicyLayer = { ...user.whole, rules: parsed.value.rules };
  const snapshot = compileSnapshot({ user: tried, corp: corp.whole }, sha256);
  return { kind: "ok", snapshot, rules: parsed.value.rules.length };
}

/** The policy in force with another `corp.toml`, and the rule files that it names, read where they would be. */
export async function withCorpText(state: PolicyState, uid: number, text: string): Promise<Candidate> {
  const read = await readLayer({ source: "corp", path: state.corp.path, uid, read: { kind: "text", text } });
  if (read.kind === "refused") return read;
  const { snapshot } = stateOf(state.user, read.layer);
  return { kind: "ok", snapshot, rules: read.layer.whole.rules.length };
}
