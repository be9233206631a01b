import { createHmac } from "node:crypto";
import type { SecurityEvent } from "@capsem/policy";
import { canonicalJson } from "./canonical-json.ts";
import type { ActDraft } from "./parts.ts";

/** Minted for each try: a retry has others. */
const OF_ONE_TRY: ReadonlySet<string> = new Set(["process.exec.id"]);
/** The id of a VM that is not there yet is minted too. */
const OF_NEW_VM: ReadonlySet<string> = new Set([...OF_ONE_TRY, "vm.id"]);

/**
 * What an approval is bound to: type, VM and arguments. Keyed, because whoever reads the ledger must not be able to try
 * out which secret an argument was.
 */
export function askDigest(
  key: Uint8Array,
  event: SecurityEvent,
  { vm, isNew, bound }: Pick<ActDraft, "vm" | "isNew" | "bound">,
): string {
  const left = isNew ? OF_NEW_VM : OF_ONE_TRY;
  const fields = Object.entries(event.toJSON().fields).filter(([path]) => !left.has(path));
  const text = canonicalJson({
    type: event.type,
    vm: isNew || vm === null ? null : vm.id,
    fields: Object.fromEntries(fields),
    bound: bound?.() ?? null,
  });
  return createHmac("sha256", key).update(text).digest("hex");
}
