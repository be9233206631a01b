import { createHmac } from "node:crypto";
import { LABEL_PATHS, type LabelPath, type SecurityEvent } from "@capsem/policy";
import { canonicalJson } from "./canonical-json.ts";
import type { ActDraft, Asked } from "./parts.ts";

/** Minted for each try: a retry has others. */
const OF_ONE_TRY: ReadonlySet<string> = new Set(["process.exec.id", "mcp.tool_call.id", "mcp.request.id"]);
/** The id of a VM that is not there yet is minted too. */
const OF_NEW_VM: ReadonlySet<string> = new Set([...OF_ONE_TRY, "vm.id"]);

type Drafted = Pick<ActDraft, "vm" | "isNew" | "bound" | "onlyOnce">;
export type AskBinding = Pick<Asked, "digest" | "bound" | "onlyOnce" | "labels">;

/**
 * What an approval is bound to: type, VM and arguments. Keyed, because whoever reads the ledger must not be able to try
 * out which secret an argument was. Of the label it is bound to `labels` alone: the rest says what the agent has seen
 * until then, not what it wants to do. Throws what reading an upload throws.
 */
export async function askBinding(
  key: Uint8Array,
  event: SecurityEvent,
  { vm, isNew, bound, onlyOnce }: Drafted,
  labels: readonly LabelPath[],
): Promise<AskBinding> {
  const left = isNew ? OF_NEW_VM : OF_ONE_TRY;
  const unbound = new Set<string>(LABEL_PATHS.filter((path) => !labels.includes(path)));
  const fields = Object.entries(event.toJSON().fields).filter(
    ([path]) => !left.has(path) && !unbound.has(path),
  );
  const given = (await bound?.()) ?? {};
  const text = canonicalJson({
    type: event.type,
    vm: isNew || vm === null ? null : vm.id,
    fields: Object.fromEntries(fields),
    bound: given,
  });
  return {
    digest: createHmac("sha256", key).update(text).digest("hex"),
    bound: Object.keys(given).filter((name) => given[name] !== undefined),
    labels,
    onlyOnce: isNew ? "its VM is only being made" : (onlyOnce?.(given) ?? null),
  };
}
