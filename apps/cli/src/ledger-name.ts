import { VM_ID_PATTERN } from "@capsem/base";
import { CapsemError } from "@capsem/sdk";
import type { Context } from "./context.ts";
import { renderLocal } from "./render.ts";
import { suggest } from "./suggest.ts";

/**
 * The id of what has a ledger: a VM's id, `host`, or a name. A VM that is there has its name before those that are gone;
 * of these the one that did something last is meant, and that is said where there are several.
 */
export async function findLedger(
  { client, names, output }: Pick<Context, "client" | "names" | "output">,
  word: string,
): Promise<string> {
  if (VM_ID_PATTERN.test(word) || word === "host") return word;
  const service = await client();
  const live = (await service.vms.list()).find((vm) => vm.name === word);
  if (live !== undefined) {
    names.set(live.id, word);
    return live.id;
  }
  const ledgers = await service.ledgers.list();
  const found = ledgers
    .filter(({ name }) => name === word)
    .sort((left, right) => (right.last_time ?? "").localeCompare(left.last_time ?? ""));
  const [newest] = found;
  if (newest === undefined) {
    const near = suggest(word, [...new Set(ledgers.flatMap(({ name }) => (name === null ? [] : [name])))]);
    const hint = near === null ? "no VM has or had this name" : `did you mean ${JSON.stringify(near)}?`;
    throw new CapsemError("ledger_not_found", `Cannot find ledger of ${JSON.stringify(word)}: ${hint}`, {
      status: 404,
    });
  }
  if (found.length > 1)
    await output.say(
      `${found.length} VMs had the name ${JSON.stringify(word)}; this is the last, ${newest.vm_id} (until ${renderLocal(newest.last_time)}); capsem ledger list has all`,
    );
  names.set(newest.vm_id, word);
  return newest.vm_id;
}
