import { type AskInfo, askInfo, shownRequester } from "@capsem/api";
import { LABEL_PATHS } from "@capsem/policy";
import * as z from "zod";
import { hasAlwaysRule } from "./always-rule.ts";

const matchedRule = z.strictObject({
  rule_id: z.string(),
  action: z.string(),
  priority: z.number(),
  detection: z.string(),
  fault: z.string().optional(),
});

/** What a rule for "always" is made of: the act as it is stored, and what was decided of it. Gone when it is resolved. */
const always = z.strictObject({
  event: z.record(z.string(), z.unknown()),
  decision: z.looseObject({
    action: z.string(),
    rule_id: z.string(),
    explanation: z.looseObject({ matched: z.array(matchedRule) }),
  }),
  /** Names of arguments that an approval covers and that no rule can name. */
  bound: z.array(z.string()),
  /** The parts of the label that it covers; all of them where a service of before wrote the file. */
  labels: z.array(z.enum(LABEL_PATHS)).default([...LABEL_PATHS]),
});

/** One ask as its file has it. */
export const askRecord = z.strictObject({
  version: z.literal(1),
  ask: askInfo.omit({ is_held: true, scopes: true }),
  turn_id: z.string().nullable(),
  token_id: z.string().nullable(),
  always: always.nullable(),
  /** Why an approval can serve one call alone; null: it can serve the same act again. */
  only_once: z.string().nullable(),
  /** Its last state is in the ledger, or will be when the ledger takes rows again. */
  is_recorded: z.boolean(),
});
export type AskRecord = z.infer<typeof askRecord>;

/** As it is shown. `hasVm`: an approval for the VM can be used there again. */
export function infoOf(record: AskRecord, { isHeld, hasVm }: { isHeld: boolean; hasVm: boolean }): AskInfo {
  const { ask, token_id } = record;
  const requester = shownRequester(ask.requester, token_id);
  return { ...ask, requester, is_held: isHeld, scopes: scopesOf(record, hasVm) };
}

function scopesOf(record: AskRecord, hasVm: boolean): AskInfo["scopes"] {
  if (record.ask.state !== "pending") return [];
  return [
    "once",
    ...(hasVm && record.only_once === null ? (["vm"] as const) : []),
    ...(hasAlwaysRule(record) ? (["always"] as const) : []),
  ];
}
