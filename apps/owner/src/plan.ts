import type { Readable } from "node:stream";
import { type SpawnPlan, spawnPlan } from "@capsem/api";
import { Failure } from "@capsem/base";
import { OWNER_LIMITS } from "./limits.ts";

/** The spawn plan: one JSON line on stdin, from the service. */
export async function readPlan(input: Readable): Promise<SpawnPlan> {
  let text = "";
  for await (const chunk of input) {
    text += Buffer.from(chunk).toString("utf8");
    if (text.length > OWNER_LIMITS.planBytesMax)
      throw new Failure(
        "invalid_input",
        `Cannot read the spawn plan: over ${OWNER_LIMITS.planBytesMax} bytes`,
      );
    const end = text.indexOf("\n");
    if (end >= 0) return parsePlan(text.slice(0, end));
  }
  throw new Failure("invalid_input", "Cannot read the spawn plan: stdin ended early");
}

export function parsePlan(line: string): SpawnPlan {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw new Failure("invalid_input", "Cannot read the spawn plan: not JSON", { cause });
  }
  // One plan is parsed: compiling a parser for it takes longer than the parser saves.
  const parsed = spawnPlan.safeParse(value, { jitless: true });
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new Failure(
      "invalid_input",
      `Cannot read the spawn plan: ${issue?.path.join(".")} ${issue?.message}`,
    );
  }
  return parsed.data;
}
