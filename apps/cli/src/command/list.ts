import type { Handler } from "../context.ts";
import { renderBytes, renderTable } from "../render.ts";

export const list: Handler = async ({ client, output, json }, args) => {
  const vms = await (await client()).vms.list();
  if (json) await output.json({ vms });
  else if (args.flag("quiet")) await output.print(vms.map((vm) => `${vm.id}\n`).join(""));
  else if (args.flag("names")) await output.print(vms.map((vm) => `${vm.name ?? vm.id}\n`).join(""));
  else {
    const rows = vms.map((vm) => [
      vm.id,
      vm.name ?? "-",
      vm.reason === null ? vm.state : `${vm.state} (${vm.reason})`,
      String(vm.cpus),
      `${vm.memory_gib} GiB`,
      renderBytes(vm.disk.allocated_bytes),
      vm.created_at,
    ]);
    await output.print(renderTable(["ID", "NAME", "STATE", "CPUS", "MEMORY", "DISK", "CREATED"], rows));
  }
  return 0;
};
