import { type AskInfo, askInfo } from "@capsem/api";
import * as z from "zod";

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
});

/** One ask as its file has it. */
export const askRecord = z.strictObject({
  version: z.literal(1),
  ask: askInfo.omit({ is_held: true }),
  turn_id: z.string().nullable(),
  token_id: z.string().nullable(),
  always: always.nullable(),
  /** Its last state is in the ledger, or will be when the ledger takes rows again. */
  is_recorded: z.boolean(),
});
export type AskRecord = z.infer<typeof askRecord>;

export function infoOf({ ask }: AskRecord, isHeld: boolean): AskInfo {
  return { ...ask, is_held: isHeld };
}
