import { usageError } from "../cli-error.ts";
import type { Handler } from "../context.ts";
import { copyFromVm } from "../copy-from-vm.ts";
import { copyToVm } from "../copy-to-vm.ts";
import { findVm } from "../vm-name.ts";

export const cp: Handler = async (context, args) => {
  const source = placeOf(args.word(0));
  const target = placeOf(args.word(1));
  if (source.vm !== null && target.vm !== null)
    throw usageError("Cannot copy between two VMs: copy to this machine first");
  if (source.vm === null && target.vm === null)
    throw usageError("Cannot copy: one of the two must be VM:PATH; ./ before a local name with a colon");
  const vm = await findVm(context, source.vm ?? target.vm ?? "");
  if (source.vm !== null) return await copyFromVm(context, vm, source.path, target.path);
  return await copyToVm(context, vm, source.path, target.path);
};

interface Place {
  readonly vm: string | null;
  readonly path: string;
}

/** As scp: a colon before any slash names a machine. */
function placeOf(word: string): Place {
  const colon = word.indexOf(":");
  const slash = word.indexOf("/");
  if (colon <= 0 || (slash >= 0 && slash < colon)) return { vm: null, path: word };
  const path = word.slice(colon + 1);
  return { vm: word.slice(0, colon), path: path === "" ? "/workspace" : path };
}
