import * as z from "zod";
import type { RouteName } from "./route-table.ts";
import { vmId } from "./vm-schema.ts";

/** What a tool's arguments become: the parts of its route's request. */
export interface ToolRequest {
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  readonly body?: unknown;
}

/** Hints of the protocol; each is true of what the route does. */
export interface ToolAnnotations {
  readonly readOnlyHint: boolean;
  /** It may end, overwrite or remove something that existed. */
  readonly destructiveHint: boolean;
  /** The same call again changes nothing more. */
  readonly idempotentHint: boolean;
  /** It may reach what is neither ours nor the caller's, such as the network. */
  readonly openWorldHint: boolean;
}

/** One host tool. The input has the design's parameter names, and only those that the route takes today. */
export interface Tool {
  readonly route: RouteName;
  readonly title: string;
  /** For a model: what it does, what comes back, units, defaults, limits. */
  readonly description: string;
  readonly input: z.ZodObject;
  readonly output: z.ZodObject;
  readonly annotations: ToolAnnotations;
  /** Pure; `args` has passed `input`. */
  readonly request: (args: Readonly<Record<string, unknown>>) => ToolRequest;
}

interface ToolRow<S extends z.ZodObject> extends Omit<Tool, "input" | "request"> {
  readonly input: S;
  readonly request: (args: z.output<S>) => ToolRequest;
}

/** Types a row's mapping by its own input; the caller of `request` has parsed with it. */
export function tool<S extends z.ZodObject>(row: ToolRow<S>): Tool {
  return { ...row, request: (args) => row.request(args as z.output<S>) };
}

export const READS = {
  readOnlyHint: true,
  destructiveHint: false,
  idempotentHint: true,
  openWorldHint: false,
} as const;
/** Makes something new each time. */
export const MAKES = {
  readOnlyHint: false,
  destructiveHint: false,
  idempotentHint: false,
  openWorldHint: false,
} as const;
/** Brings something to a state; being there already is no change. */
export const SETS = { ...MAKES, idempotentHint: true } as const;
export const DESTROYS = { ...SETS, destructiveHint: true } as const;

export const noArguments = z.strictObject({});
export const vmArgument = vmId.describe("Id of the VM (vm_…), from capsem_create or capsem_list");
export const ofVmTool = z.strictObject({ vm_id: vmArgument });
export const onVm = ({ vm_id: id }: { readonly vm_id: string }): ToolRequest => ({ params: { id } });

/** The query's words without those that were not given. */
export function given<T extends object>(words: T): T {
  return Object.fromEntries(Object.entries(words).filter(([, value]) => value !== undefined)) as T;
}
