import { VM_ID_PATTERN } from "@capsem/base";
import { CapsemError, type Vm } from "@capsem/sdk";
import type { Context } from "./context.ts";
import { suggest } from "./suggest.ts";

/** A VM by its id or name. Routes take ids alone, so a name costs one list. */
export async function findVm(
  { client, names }: Pick<Context, "client" | "names">,
  word: string,
): Promise<Vm> {
  const service = await client();
  if (VM_ID_PATTERN.test(word)) return service.vm(word);
  const vms = await service.vms.list();
  const found = vms.find((vm) => vm.name === word);
  if (found !== undefined) {
    names.set(found.id, word);
    return service.vm(found.id);
  }
  const near = suggest(
    word,
    vms.flatMap((vm) => (vm.name === null ? [] : [vm.name])),
  );
  const hint = near === null ? "no VM has this name or id" : `did you mean ${JSON.stringify(near)}?`;
  throw new CapsemError("vm_not_found", `Cannot find VM ${JSON.stringify(word)}: ${hint}`, { status: 404 });
}
