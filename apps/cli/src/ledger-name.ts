import type { LedgerInfo } from "@capsem/api";
import { VM_ID_PATTERN } from "@capsem/base";
import { CapsemError } from "@capsem/sdk";
import type { Context } from "./context.ts";
import { renderLocal } from "./render.ts";
import { suggest } from "./suggest.ts";

/** One that was set aside: whose it is, and the name that it was given. */
const SET_ASIDE = /^(vm_[a-z2-7]{16}|host)@\S+$/;

/**
 * The id of what has a ledger: a VM's id, `host`, or a name. A VM that is there has its name before those that are gone;
 * of these the one that did something last is meant. Where others had the name, that is said.
 */
export async function findLedger(
  { client, names, output }: Pick<Context, "client" | "names" | "output">,
  word: string,
): Promise<string> {
  if (VM_ID_PATTERN.test(word) || word === "host" || SET_ASIDE.test(word)) return word;
  const service = await client();
  const [vms, ledgers] = await Promise.all([service.vms.list(), service.ledgers.list()]);
  const live = vms.find((vm) => vm.name === word);
  const found = ledgers
    .filter(({ name, vm_id: id }) => name === word && id !== live?.id)
    .sort((left, right) => (right.last_time ?? "").localeCompare(left.last_time ?? ""));
  if (live !== undefined) {
    await tellOlder(output, word, found);
    names.set(live.id, word);
    return live.id;
  }
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

async function tellOlder(
  output: Context["output"],
  name: string,
  gone: readonly LedgerInfo[],
): Promise<void> {
  const [last] = gone;
  if (last === undefined) return;
  const named = JSON.stringify(name);
  const until = `(until ${renderLocal(last.last_time)})`;
  await output.say(
    gone.length === 1
      ? `a VM that is gone had the name ${named} too: ${last.vm_id} ${until}`
      : `${gone.length} VMs that are gone had the name ${named} too, ${last.vm_id} the last ${until}; capsem ledger list has all`,
  );
}
