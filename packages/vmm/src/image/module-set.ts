import type { KernelModule } from "./kernel-modules.ts";
import { orderModules } from "./kernel-modules.ts";
import type { UnpackedKernel } from "./kernel-step.ts";

/** Loads the wanted modules and all they need from the kernel, in the order for `insmod`. */
export async function loadModules(
  kernel: UnpackedKernel,
  wanted: readonly string[],
): Promise<KernelModule[]> {
  const loaded = new Map<string, KernelModule>();
  const queue = [...wanted];
  for (let name = queue.shift(); name !== undefined; name = queue.shift()) {
    if (loaded.has(name)) continue;
    const module = await kernel.loadModule(name);
    if (module === undefined) continue;
    loaded.set(name, module);
    queue.push(...module.depends);
  }
  return orderModules(wanted, (name) => loaded.get(name));
}
