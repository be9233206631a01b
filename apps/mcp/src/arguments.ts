import { type Fault, faultLine, parseOrFaults, type Tool, type ToolRequest } from "@capsem/api";
import { NAME_PATTERN } from "@capsem/base";
import { ToolFailure } from "./tool-failure.ts";

/** The request of a call, or a failure that names each wrong argument. Of values it repeats a VM's name alone. */
export function requestOf(name: string, tool: Tool, args: Readonly<Record<string, unknown>>): ToolRequest {
  const parsed = parseOrFaults(tool.input, args);
  if (parsed.kind === "value") return tool.request(parsed.value);
  const faults = parsed.faults.map((fault) => named(fault, args.vm_id));
  throw new ToolFailure({
    kind: "invalid_input",
    reason: `Cannot use ${name}: ${faultLine(faults, "arguments")}`,
    retryable: false,
  });
}

/** Who gave a VM a name takes it for its id. */
function named(fault: Fault, vmId: unknown): Fault {
  if (fault.path !== "vm_id" || typeof vmId !== "string" || !NAME_PATTERN.test(vmId)) return fault;
  return { ...fault, text: `"${vmId}" is a name, not an id; capsem_list tells the id` };
}
