import type { Readable } from "node:stream";
import { type LedgerPlan, ledgerPlan } from "@capsem/api";
import { Failure } from "@capsem/base";
import { APP_LIMITS } from "./limits.ts";

/** The plan: one JSON line on stdin, from the service. The input may end behind it; the channels say when to end. */
export async function readPlan(input: Readable): Promise<LedgerPlan> {
  let text = "";
  for await (const chunk of input) {
    text += Buffer.from(chunk).toString("utf8");
    if (text.length > APP_LIMITS.planBytesMax) throw refused(`over ${APP_LIMITS.planBytesMax} bytes`);
    const end = text.indexOf("\n");
    if (end >= 0) return parsePlan(text.slice(0, end));
  }
  throw refused("stdin ended early");
}

export function parsePlan(line: string): LedgerPlan {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw refused("not JSON", cause);
  }
  // One plan is parsed: compiling a parser for it takes longer than the parser saves.
  const parsed = ledgerPlan.safeParse(value, { jitless: true });
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw refused(`${issue?.path.join(".")} ${issue?.message}`);
  }
  const { channels, folder } = parsed.data;
  if (channels.length === 0) throw refused("it has no channels");
  if (new Set(channels.map(({ fd }) => fd)).size < channels.length)
    throw refused("two channels are one descriptor");
  if (!folder.startsWith("/")) throw refused("its folder is no absolute path");
  return parsed.data;
}

function refused(state: string, cause?: unknown): Failure {
  return new Failure("invalid_input", `Cannot read the ledger's plan: ${state}`, { cause });
}
