import * as z from "zod";
import { checkEnv } from "./env-table.ts";
import {
  DESTROYS,
  given,
  MAKES,
  noArguments,
  ofVmTool,
  onVm,
  READS,
  SETS,
  type Tool,
  tool,
  vmArgument,
} from "./tool-row.ts";
import { VM_ROUTES } from "./vm-routes.ts";
import { cpus, env, memoryGib, vmName } from "./vm-schema.ts";

export const cpusArgument = cpus.optional().describe("Virtual CPUs, default 1");
export const memoryArgument = memoryGib.optional().describe("Memory in GiB, steps of 0.25, default 0.5");
/** What is wrong with it is said by name: values are never part of a message. */
export const envArgument = env.optional().superRefine((variables, context) => {
  const fault = variables === undefined ? null : checkEnv(variables);
  if (fault !== null) context.addIssue({ code: "custom", message: fault });
});

export const VM_TOOLS = {
  capsem_list: tool({
    route: "list",
    title: "List VMs",
    description:
      "Lists all VMs with id, name (null: temporary), state, reason for an unexpected stop, health, cpus, memory_gib and disk use. Call it to find a vm_id.",
    input: noArguments,
    output: VM_ROUTES.list.result,
    annotations: READS,
    request: () => ({}),
  }),
  capsem_info: tool({
    route: "info",
    title: "Inspect a VM",
    description:
      "Everything about one VM: state, reason, health, size, image, names (not values) of its environment, disk use in bytes, and the last log lines when it failed.",
    input: ofVmTool,
    output: VM_ROUTES.info.result,
    annotations: READS,
    request: onVm,
  }),
  capsem_create: tool({
    route: "create",
    title: "Create a VM",
    description:
      "Creates and starts a Linux VM and answers with its id when it is ready, usually within a second. With a name the VM and its disk are kept when it stops; without one it is temporary and destroyed when it stops. Follow with capsem_exec.",
    input: z.strictObject({
      name: vmName
        .optional()
        .describe("Keep the VM under this name: a lower-case letter, then a-z, 0-9 and -"),
      cpus: cpusArgument,
      memory: memoryArgument,
      env: envArgument.describe("Environment of every command in the VM; values are never shown again"),
    }),
    output: VM_ROUTES.create.result,
    annotations: MAKES,
    request: ({ memory, ...rest }) => ({ body: given({ ...rest, memory_gib: memory }) }),
  }),
  capsem_start: tool({
    route: "start",
    title: "Start a VM",
    description: "Starts a stopped VM, with the disk it had, and answers with the VM when it is ready.",
    input: ofVmTool,
    output: VM_ROUTES.start.result,
    annotations: SETS,
    request: onVm,
  }),
  capsem_stop: tool({
    route: "stop",
    title: "Stop a VM",
    description:
      "Stops a VM and ends what runs in it. A named VM keeps its disk and can be started again; a temporary VM is DESTROYED with its files. Use capsem_persist first to keep it.",
    input: ofVmTool,
    output: VM_ROUTES.stop.result,
    annotations: DESTROYS,
    request: onVm,
  }),
  capsem_delete: tool({
    route: "delete",
    title: "Delete a VM",
    description: "Deletes a VM in any state, with its disk and all files. This cannot be undone.",
    input: ofVmTool,
    output: VM_ROUTES.delete.result,
    annotations: DESTROYS,
    request: onVm,
  }),
  capsem_persist: tool({
    route: "persist",
    title: "Keep a temporary VM",
    description: "Gives a temporary VM a name, so that it and its disk are kept when it stops.",
    input: z.strictObject({
      vm_id: vmArgument,
      name: vmName.describe("The new name: a lower-case letter, then a-z, 0-9 and -"),
    }),
    output: VM_ROUTES.persist.result,
    annotations: SETS,
    request: ({ vm_id: id, name }) => ({ params: { id }, body: { name } }),
  }),
  capsem_purge: tool({
    route: "purge",
    title: "Delete VMs in bulk",
    description:
      "Deletes all temporary VMs, running and failed ones too, and answers with their ids. With all=true named VMs are deleted as well. This cannot be undone.",
    input: z.strictObject({
      all: z.boolean().optional().describe("Delete named VMs too; default false"),
    }),
    output: VM_ROUTES.purge.result,
    annotations: DESTROYS,
    request: (args) => ({ body: given(args) }),
  }),
} as const satisfies Record<string, Tool>;
