import type { Handler } from "../context.ts";
import { printable, renderBytes, renderPairs } from "../render.ts";
import { findVm } from "../vm-name.ts";

export const info: Handler = async ({ client, names, output, json }, args) => {
  const vm = await (await findVm({ client, names }, args.word(0))).info();
  if (json) {
    await output.json(vm);
    return 0;
  }
  const pairs: [string, string][] = [
    ["id", vm.id],
    ["name", vm.name ?? "- (temporary)"],
    ["state", vm.reason === null ? vm.state : `${vm.state} (${vm.reason})`],
    ["health", vm.health === null ? "-" : `owner ${vm.health.owner}, guest ${vm.health.guest}`],
    ["cpus", String(vm.cpus)],
    ["memory", `${vm.memory_gib} GiB`],
    ["disk", `${renderBytes(vm.disk.allocated_bytes)} of ${renderBytes(vm.disk.allocated_bytes_max)}`],
    ["created", vm.created_at],
    ["started", vm.started_at ?? "-"],
    ["image", vm.image],
    ["env", vm.env_names.length === 0 ? "-" : vm.env_names.join(" ")],
  ];
  await output.print(renderPairs(pairs));
  for (const line of vm.log_tail ?? []) await output.line(`  ${printable(line)}`);
  return 0;
};
