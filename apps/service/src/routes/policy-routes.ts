import { type PolicyEdit, type PolicySnapshot, ruleId } from "@capsem/policy";
import type { VmFacts } from "../boundary/parts.ts";
import { type Handlers, json } from "../http/handler.ts";
import { type Candidate, withCorpText, withUserRules } from "../policy/candidate.ts";
import { dryRun } from "../policy/dry-run.ts";
import { faultFailure } from "../policy/faults.ts";
import { corpInfo, findingInfos, ruleInfos, settingList } from "../policy/infos.ts";
import type { KnownTools } from "../policy/known-call.ts";
import { lintInTurns } from "../policy/lint-in-turns.ts";
import type { PolicyChanges } from "../policy/policy-changes.ts";
import type { PolicyStore } from "../policy/policy-store.ts";
import { type DecisionsOf, replayPast } from "../policy/replay-past.ts";
import { sinceMsOf } from "../trouble/since.ts";

export interface PolicyRouteParts {
  readonly policy: PolicyStore;
  readonly policyChanges: Pick<PolicyChanges, "edit" | "reload">;
  readonly nowMs: () => number;
  /** Throws Failure "vm_not_found". */
  readonly vmFacts: (id: string) => VmFacts;
  readonly decisionsOf: DecisionsOf;
  readonly knownTools: KnownTools;
}

export function policyRoutes(parts: PolicyRouteParts) {
  return { ...ruleRoutes(parts), ...trialRoutes(parts), ...settingRoutes(parts) };
}

function ruleRoutes({ policy, policyChanges }: PolicyRouteParts) {
  const changed = async () => {
    const { snapshot, findings } = policy.state;
    return json({ digest: snapshot.digest, findings: findingInfos(await findings()) });
  };
  return {
    rules: async () => {
      const { state } = policy;
      const { preset, digest, posture } = state.snapshot;
      return json({
        ...{ preset, digest, rules: ruleInfos(state), posture: Object.fromEntries(posture) },
        findings: findingInfos(await state.findings()),
      });
    },
    rulePut: async ({ params, body, context }) => {
      await policyChanges.edit(context, [{ kind: "put_rule", id: idOf(params.id), fields: body }]);
      return changed();
    },
    ruleDelete: async ({ params, context }) => {
      await policyChanges.edit(context, [{ kind: "delete_rule", id: idOf(params.id) }]);
      return changed();
    },
  } satisfies Partial<Handlers>;
}

/** What would be, without doing anything. */
function trialRoutes({ policy, vmFacts, decisionsOf, knownTools, nowMs }: PolicyRouteParts) {
  const snapshotWith = (rules: string | undefined): PolicySnapshot =>
    rules === undefined ? policy.snapshot() : taken(withUserRules(policy.state, rules));
  return {
    ruleEvaluate: async ({ body }) => {
      const vm = body.vm_id === undefined ? null : vmFacts(body.vm_id);
      return json(dryRun(snapshotWith(body.rules), body.event, vm, knownTools));
    },
    ruleReplay: async ({ body, context }) => {
      const snapshot = snapshotWith(body.rules);
      const { signal } = context;
      const entries = decisionsOf(body.vm_id, { sinceMs: sinceMsOf(body.since, nowMs()), signal });
      return json(await replayPast(entries, snapshot, signal));
    },
    ruleLint: async ({ body }) => {
      const { state } = policy;
      if (body.rules === undefined) {
        const findings = findingInfos(await state.findings());
        return json({ rules: state.snapshot.rules.length, findings, faults: [...policy.faults] });
      }
      const candidate = withUserRules(state, body.rules);
      if (candidate.kind === "refused")
        return json({ rules: 0, findings: [], faults: [...candidate.faults] });
      const findings = findingInfos(await lintInTurns(candidate.snapshot.rules));
      return json({ rules: candidate.rules, findings, faults: [] });
    },
    corpValidate: async ({ body }) => {
      const candidate = await withCorpText(policy.state, policy.uid, body.text);
      if (candidate.kind === "refused") {
        return json({ is_valid: false, rules: 0, faults: [...candidate.faults], findings: [] });
      }
      const findings = findingInfos(await lintInTurns(candidate.snapshot.rules));
      return json({ is_valid: true, rules: candidate.rules, faults: [], findings });
    },
  } satisfies Partial<Handlers>;
}

function settingRoutes({ policy, policyChanges }: PolicyRouteParts) {
  return {
    settings: async () => json(settingList(policy)),
    settingEdit: async ({ body, context }) => {
      const edits = body.edits.map(
        ({ key, value }): PolicyEdit =>
          value === null ? { kind: "reset", key } : { kind: "set", key, value },
      );
      await policyChanges.edit(context, edits);
      return json(settingList(policy));
    },
    corp: async () => json(corpInfo(policy)),
    corpReload: async ({ context }) => {
      await policyChanges.reload(context);
      return json(corpInfo(policy));
    },
  } satisfies Partial<Handlers>;
}

/** A name alone is one of the user's rules; names have no dots. */
function idOf(given: string): string {
  return given.includes(".") ? given : ruleId("user", given);
}

function taken(candidate: Candidate): PolicySnapshot {
  if (candidate.kind === "ok") return candidate.snapshot;
  throw faultFailure("use these rules", candidate.faults);
}
