import { env, VM_REASONS, VM_STATES, vmId, vmName } from "@capsem/api";
import * as z from "zod";

/** vms/<id>/vm.json: everything about a VM that outlives the service. It holds the environment: mode 0600. */
export const vmRecord = z.strictObject({
  schema: z.literal(1),
  id: vmId,
  name: vmName.nullable(),
  state: z.enum(VM_STATES),
  reason: z.enum(VM_REASONS).nullable(),
  cpus: z.number().int().positive(),
  memory_mib: z.number().int().positive(),
  created_at: z.string(),
  started_at: z.string().nullable(),
  /** When it failed: a failed temporary VM is kept for a while. */
  failed_at: z.string().nullable(),
  /** Digest of the root file system under this disk. */
  image: z.string(),
  env,
});
export type VmRecord = z.infer<typeof vmRecord>;
