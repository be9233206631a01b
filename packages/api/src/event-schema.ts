import * as z from "zod";
import { askInfo } from "./policy-schema.ts";
import { VM_REASONS, VM_STATES, vmId, vmInfo } from "./vm-schema.ts";

const count = z.number().int().nonnegative();

/**
 * Messages of `capsem.events.v1`, all from the service, one JSON text each. `hello` is first and has the VMs of that
 * moment; `seq` rises by one with each later message; `lagged` says that a slow reader missed some and must list again.
 */
export const serviceEvent = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("hello"),
    seq: count,
    service_started_at: z.string(),
    vms: z.array(vmInfo),
    /** Those that wait. */
    asks: z.array(askInfo),
  }),
  z.strictObject({ type: z.literal("vm"), seq: count, time: z.string(), vm: vmInfo }),
  z.strictObject({
    type: z.literal("vm_gone"),
    seq: count,
    time: z.string(),
    vm_id: vmId,
    last_state: z.enum(VM_STATES),
    reason: z.enum(VM_REASONS).nullable(),
  }),
  /** An ask was made or resolved. */
  z.strictObject({ type: z.literal("ask"), seq: count, time: z.string(), ask: askInfo }),
  z.strictObject({ type: z.literal("lagged"), seq: count, missed: count }),
]);
export type ServiceEvent = z.infer<typeof serviceEvent>;
