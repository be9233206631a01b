import type { AskInfo } from "@capsem/api";
import { cleanLine } from "./clean-line.ts";
import type { Answer, Question } from "./conversation.ts";
import { ASK_NOTE_CHARS_MAX, ASK_REASON_CHARS_MAX, ASK_TITLE_CHARS_MAX } from "./limits.ts";

type Scope = "once" | "vm";

/** What a person decided. */
export type Choice =
  | { readonly kind: "approve"; readonly scope: Scope; readonly note: string }
  | { readonly kind: "deny"; readonly note: string }
  /** Nobody has said anything: many a client that has nobody to show a form to closes it by itself. */
  | { readonly kind: "closed" }
  /** The client says that its user accepted, and not what. */
  | { readonly kind: "none" };

/** What the service can be told. */
export type Resolution = Extract<Choice, { kind: "approve" | "deny" }>;

const TITLES: Readonly<Record<Scope | "deny", string>> = {
  once: "Approve once",
  vm: "Approve for this VM",
  deny: "Deny",
};

/**
 * The one form of an ask. Each line of it is the service's word, secrets replaced, and none can begin another: the model
 * has written parts of them. `vmId` is the VM that the call names; one that the call itself makes is another each time.
 */
export function questionOf(
  tool: string,
  ask: AskInfo,
  vmId: unknown,
  { hasTitles, nowMs }: { readonly hasTitles: boolean; readonly nowMs: number },
): Question {
  const offersVm = ask.vm_id !== null && ask.vm_id === vmId;
  // The gateway may be on another machine, whose clock shows another time: only spans of it mean something here.
  const untilMs = nowMs + Math.max(0, Date.parse(ask.expires_at) - Date.parse(ask.created_at));
  const choices = (["once", "vm", "deny"] as const).filter((choice) => choice !== "vm" || offersVm);
  const named = hasTitles
    ? { oneOf: choices.map((choice) => ({ const: choice, title: TITLES[choice] })) }
    : { enum: choices, enumNames: choices.map((choice) => TITLES[choice]) };
  return {
    ask: { id: ask.id, ruleId: ask.rule_id, offersVm, untilMs },
    message: messageOf(tool, ask),
    requestedSchema: {
      type: "object",
      properties: {
        decision: { type: "string", title: "Decision", ...named },
        note: {
          type: "string",
          title: "Note",
          description: "Why, for the record",
          maxLength: ASK_NOTE_CHARS_MAX,
        },
      },
      required: ["decision"],
    },
  };
}

function messageOf(tool: string, { title, rule_id, reason, vm_id, vm_name }: AskInfo): string {
  const what = cleanLine(title, ASK_TITLE_CHARS_MAX);
  const vm = vm_name === null ? vm_id : `${vm_name} (${vm_id})`;
  const lines = [
    `${tool} goes on only if you approve it.`,
    `Asked for: ${what}`,
    ...(what.endsWith("…") ? ["That is its beginning: the rest is too long to be shown."] : []),
    ...(vm === null ? [] : [`VM: ${cleanLine(vm, ASK_TITLE_CHARS_MAX)}`]),
    `Rule: ${because({ rule_id, reason })}`,
  ];
  return lines.join("\n");
}

export function because({ rule_id, reason }: Pick<AskInfo, "rule_id" | "reason">): string {
  return cleanLine(`${rule_id}: ${reason}`, ASK_REASON_CHARS_MAX);
}

/** Nothing but a choice that was offered, made by who accepted the form, approves; nothing but a refusal denies. */
export function choiceIn({ action, content, ask }: Answer): Choice {
  if (action === "cancel") return { kind: "closed" };
  const note = typeof content.note === "string" ? cleanLine(content.note, ASK_NOTE_CHARS_MAX) : "";
  if (action === "decline" || content.decision === "deny") return { kind: "deny", note };
  const { decision } = content;
  if (decision === "once" || (decision === "vm" && ask.offersVm))
    return { kind: "approve", scope: decision, note };
  return { kind: "none" };
}

/** For the record: where the answer came from, and what the person wrote beside it. */
export function noteOf({ note }: Resolution): string {
  const where = "answered in the conversation";
  return note === "" ? where : `${where}: ${note}`;
}
