import type { Readable } from "node:stream";
import { Failure } from "@capsem/base";
import type * as z from "zod";
import { WORKER_LIMITS } from "./limits.ts";

/** What a plan must be for one process. */
export interface PlanForm<T> {
  /** As an error names it: "the proxy's plan". */
  readonly name: string;
  readonly schema: z.ZodType<T>;
  /** Why a plan of that form is not one for this process; null where it is. */
  readonly fault: (plan: T) => string | null;
  readonly bytesMax?: number;
}

/** The plan: one JSON line on stdin, from the service. The input may end behind it; the channels say when to end. */
export async function readPlan<T>(input: Readable, form: PlanForm<T>): Promise<T> {
  const { bytesMax = WORKER_LIMITS.planBytesMax } = form;
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of input) {
    const chunk = Buffer.from(part);
    const end = chunk.indexOf("\n");
    parts.push(end < 0 ? chunk : chunk.subarray(0, end));
    bytes += chunk.length;
    if (bytes > bytesMax) throw refused(form, `over ${bytesMax} bytes`);
    if (end >= 0) return parsePlan(Buffer.concat(parts).toString("utf8"), form);
  }
  throw refused(form, "stdin ended early");
}

export function parsePlan<T>(line: string, form: PlanForm<T>): T {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw refused(form, "not JSON", cause);
  }
  // One plan is parsed: compiling a parser for it takes longer than the parser saves.
  const parsed = form.schema.safeParse(value, { jitless: true });
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw refused(form, `${issue?.path.join(".")} ${issue?.message}`);
  }
  const fault = form.fault(parsed.data);
  if (fault !== null) throw refused(form, fault);
  return parsed.data;
}

function refused({ name }: Pick<PlanForm<never>, "name">, state: string, cause?: unknown): Failure {
  return new Failure("invalid_input", `Cannot read ${name}: ${state}`, { cause });
}
