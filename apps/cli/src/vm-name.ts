import { VM_ID_PATTERN } from "@capsem/base";
import { CapsemError, type Client, type Vm } from "@capsem/sdk";
import { suggest } from "./suggest.ts";

/** A VM by its id or name. Routes take ids alone, so a name costs one list. */
export async function findVm(client: Client, word: string): Promise<Vm> {
  if (VM_ID_PATTERN.test(word)) return client.vm(word);
  const vms = await client.vms.list();
  const found = vms.find((vm) => vm.name === word);
  if (found !== undefined) return client.vm(found.id);
  const near = suggest(
    word,
    vms.flatMap((vm) => (vm.name === null ? [] : [vm.name])),
  );
  const hint = near === null ? "no VM has this name or id" : `did you mean ${JSON.stringify(near)}`;
  throw new CapsemError("vm_not_found", `Cannot find VM ${JSON.stringify(word)}: ${hint}`, { status: 404 });
}
