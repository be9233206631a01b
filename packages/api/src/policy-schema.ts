import * as z from "zod";
import { ledgerId } from "./ledger-schema.ts";
import { since } from "./service-schema.ts";
import { vmId } from "./vm-schema.ts";

/** Why a file, a rule or an edit was refused, and where: one of several. */
export const policyFault = z.strictObject({
  code: z.string(),
  message: z.string(),
  /** `settings.toml`, `corp.toml` or the rule file; null for an edit. */
  file: z.string().nullable(),
  line: z.number().int().nullable(),
  column: z.number().int().nullable(),
  subject: z.string().nullable(),
});
export type PolicyFaultInfo = z.infer<typeof policyFault>;

export const ruleInfo = z.strictObject({
  id: z.string(),
  name: z.string(),
  source: z.enum(["corp", "user", "builtin"]),
  action: z.string(),
  match: z.string(),
  detection_level: z.string(),
  priority: z.number().int(),
  reason: z.string(),
  enabled: z.boolean(),
  /** Where it stands; null for a built-in rule. */
  file: z.string().nullable(),
  line: z.number().int().nullable(),
  /** No route can change it. */
  is_locked: z.boolean(),
});
export type RuleInfo = z.infer<typeof ruleInfo>;

export const lintFinding = z.strictObject({
  kind: z.enum([
    "dead",
    "unobserved",
    "inert",
    "suspect",
    "no_always",
    "shadowed",
    "contradicting",
    "uncompared",
  ]),
  rule_id: z.string(),
  other_id: z.string().nullable(),
  message: z.string(),
  line: z.number().int().nullable(),
});
export type LintFindingInfo = z.infer<typeof lintFinding>;

export const ruleList = z.strictObject({
  preset: z.string(),
  /** Equal digests decide every event equally. */
  digest: z.string(),
  rules: z.array(ruleInfo),
  /** What happens where no rule matches, by event type. */
  posture: z.record(z.string(), z.enum(["allow", "ask", "block"])),
  findings: z.array(lintFinding),
});
export type RuleList = z.infer<typeof ruleList>;

/** The fields of a rule, as in a rule file. */
export const ruleFields = z.strictObject({
  action: z.string().min(1).max(32),
  match: z.string().min(1).max(4_096),
  detection_level: z.string().max(32).optional(),
  priority: z.number().int().optional(),
  reason: z.string().max(512).optional(),
  enabled: z.boolean().optional(),
});
export type RuleFields = z.infer<typeof ruleFields>;
/** The digest of the rules in force, and what the linter has to say. */
export const changed = z.strictObject({ digest: z.string(), findings: z.array(lintFinding) });
export type Changed = z.infer<typeof changed>;

/** An event in the stored form: its type, and its fields by path. */
export const eventInput = z.strictObject({
  type: z.string().min(1).max(64),
  fields: z.record(z.string(), z.unknown()),
});
export const evaluateRequest = z.strictObject({
  event: eventInput,
  /** The VM's own fields are filled in from this one. */
  vm_id: vmId.optional(),
  /** Rule file text that is judged with instead of the user's own rules. */
  rules: z.string().max(262_144).optional(),
});
export const decisionInfo = z.strictObject({
  action: z.enum(["allow", "ask", "block"]),
  rule_id: z.string(),
  reason: z.string(),
  detection: z.string(),
  changes: z.array(z.string()),
  why: z.string(),
  matched: z.array(
    z.strictObject({
      rule_id: z.string(),
      action: z.string(),
      priority: z.number().int(),
      detection: z.string(),
      fault: z.string().nullable(),
    }),
  ),
  /** Rules that allow such events, for who was not allowed. */
  allowed: z.array(z.strictObject({ rule_id: z.string(), match: z.string() })),
});
export type DecisionInfo = z.infer<typeof decisionInfo>;
/** The explanation as a person reads it, several lines. */
export const evaluateResult = z.strictObject({ decision: decisionInfo, text: z.string() });

export const replayRequest = z.strictObject({
  vm_id: ledgerId,
  /** Rule file text in place of the user's own rules; without it the rules in force. */
  rules: z.string().max(262_144).optional(),
  since: since.optional(),
});
const replayed = z.strictObject({
  time: z.string(),
  event_id: z.string(),
  type: z.string(),
  title: z.string(),
  was: z.strictObject({ action: z.string(), rule_id: z.string() }),
  now: z.strictObject({ action: z.string(), rule_id: z.string(), reason: z.string() }),
});
export const replayResult = z.strictObject({
  events: z.number().int(),
  same: z.number().int(),
  different: z.array(replayed),
  undecidable: z.array(
    z.strictObject({
      time: z.string(),
      event_id: z.string(),
      type: z.string(),
      title: z.string(),
      why: z.string(),
    }),
  ),
  /** More differ than are listed. */
  truncated: z.boolean(),
});
export type ReplayResult = z.infer<typeof replayResult>;
export const REPLAY_LISTED_MAX = 500;

export const lintRequest = z.strictObject({ rules: z.string().max(262_144).optional() });
export const lintResult = z.strictObject({
  rules: z.number().int(),
  findings: z.array(lintFinding),
  faults: z.array(policyFault),
});

export const settingValue = z.union([z.string(), z.number(), z.boolean(), z.array(z.string())]);
export const settingInfo = z.strictObject({
  key: z.string(),
  value: settingValue,
  default: settingValue,
  source: z.enum(["builtin", "user", "corp"]),
  is_locked: z.boolean(),
  /** Holds from the next start of the service. */
  needs_restart: z.boolean(),
  takes: z.string(),
  doc: z.string(),
});
export type SettingInfo = z.infer<typeof settingInfo>;
export const settingList = z.strictObject({
  file: z.string(),
  digest: z.string(),
  settings: z.array(settingInfo),
  /** Of a file that was changed by hand and cannot be read: what was in force before still is. */
  faults: z.array(policyFault),
});
export type SettingList = z.infer<typeof settingList>;
export const settingEdits = z.strictObject({
  edits: z
    .array(z.strictObject({ key: z.string().min(1).max(128), value: settingValue.nullable() }))
    .min(1)
    .max(256),
});

export const corpInfo = z.strictObject({
  file: z.string(),
  is_present: z.boolean(),
  digest: z.string().nullable(),
  rules: z.number().int(),
  locked: z.array(z.string()),
  faults: z.array(policyFault),
});
export type CorpInfo = z.infer<typeof corpInfo>;
export const corpText = z.strictObject({ text: z.string().max(262_144) });
export const corpCheck = z.strictObject({
  is_valid: z.boolean(),
  rules: z.number().int(),
  faults: z.array(policyFault),
  findings: z.array(lintFinding),
});

export const ASK_STATES = ["pending", "approved", "denied", "expired"] as const;
export const ASK_SCOPES = ["once", "vm", "always"] as const;
export const askId = z.string().regex(/^ask_[a-z2-7]{16}$/, "ask_ and 16 characters of a-z2-7");
export const askInfo = z.strictObject({
  id: askId,
  state: z.enum(ASK_STATES),
  vm_id: vmId.nullable(),
  vm_name: z.string().nullable(),
  type: z.string(),
  /** What is asked for, for a person; secrets replaced. */
  title: z.string(),
  rule_id: z.string(),
  reason: z.string(),
  /** Of the gateway with its token's fingerprint: `gateway (token 1a2b3c4d)`. */
  requester: z.string(),
  client: z.string().nullable(),
  trace_id: z.string().nullable(),
  /** What an approval is bound to. */
  digest: z.string(),
  created_at: z.string(),
  expires_at: z.string(),
  /** A call waits for it now. */
  is_held: z.boolean(),
  /** Of an approval for `once`: a retry has used it. */
  is_used: z.boolean(),
  scope: z.enum(ASK_SCOPES).nullable(),
  resolver: z.string().nullable(),
  note: z.string().nullable(),
  resolved_at: z.string().nullable(),
  event_id: z.string(),
  /** What an approval may have as its scope; none when the ask is over. */
  scopes: z.array(z.enum(ASK_SCOPES)),
});
export type AskInfo = z.infer<typeof askInfo>;
export const askResolution = z.strictObject({
  approve: z.boolean(),
  /** this call, this VM, or every time (a rule is written). Default once. */
  scope: z.enum(ASK_SCOPES).optional(),
  note: z.string().max(512).optional(),
});

export const credentialRef = z
  .string()
  .regex(/^credential:blake3:[0-9a-f]{64}$/, "credential:blake3: and 64 hex digits");
export const credentialName = z
  .string()
  .regex(/^[a-z][a-z0-9_-]{0,62}$/, "a lower-case letter, then up to 62 of a-z, 0-9, _ and -");
/** A host, or a domain and all below it as `*.example.com`. */
export const credentialHost = z.string().min(1).max(255);
export const credentialInput = z.strictObject({
  name: credentialName,
  /** At least 8 characters: a shorter one would be found everywhere. */
  secret: z.string().min(8).max(16_384),
  hosts: z.array(credentialHost).max(64),
  /** `memory`: gone with the service. `file`: kept in the home, readable by its user alone. */
  keep: z.enum(["memory", "file"]).optional(),
});
export const credentialInfo = z.strictObject({
  ref: credentialRef,
  name: credentialName,
  hosts: z.array(z.string()),
  keep: z.enum(["memory", "file"]),
  created_at: z.string(),
});
export type CredentialInfo = z.infer<typeof credentialInfo>;
export const credentialForgotten = z.strictObject({
  ok: z.literal(true),
  /** Tool servers in force, the corporation's too, that are declared with it: they cannot be reached without. */
  servers: z.array(z.string()),
});
export type CredentialForgotten = z.infer<typeof credentialForgotten>;
