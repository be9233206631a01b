import * as z from "zod";
import type { ErrorKind } from "./error-table.ts";
import { jobId, vmId } from "./vm-schema.ts";

export type BodyKind = "none" | "json" | "bytes" | "websocket";
/** Why a route has no counterpart on that side. */
export type Absent = { readonly none: string };

/** One row of the route table: all that any side needs to know of a route. */
export interface Route {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly mutates: boolean;
  /** Path parameters, then query parameters: always text on the wire. */
  readonly params?: z.ZodObject;
  readonly query?: z.ZodObject;
  readonly request: BodyKind;
  readonly body?: z.ZodType;
  readonly response: BodyKind | "ndjson";
  readonly result?: z.ZodType;
  readonly errors: readonly ErrorKind[];
  /** Answered without a token at the gateway. */
  readonly isOpen?: true;
  /** The SDK client's method, from its root: `vms.list`; `vm.` stands for the handle that `client.vm(id)` makes. */
  readonly sdk: string;
  readonly tool: string | Absent;
  readonly command: string | Absent;
  readonly summary: string;
}

export const none = (reason: string): Absent => ({ none: reason });
export const ofVm = z.strictObject({ id: vmId });
export const ofJob = z.strictObject({ id: vmId, job: jobId });
/** Relative to /workspace, or absolute in the workload root. */
export const path = z.string().min(1).max(4095);
export const int = z.coerce.number().int().nonnegative();
export const flag = z.enum(["true", "false"]).transform((word) => word === "true");
export const ok = z.strictObject({ ok: z.literal(true) });
export const inVm: readonly ErrorKind[] = ["vm_not_found", "wrong_state", "vm_gone", "unresponsive"];
