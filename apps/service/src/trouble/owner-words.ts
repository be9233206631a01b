import type { Panic, WorkerKind } from "@capsem/api";
import * as z from "zod";
import { TROUBLE_LIMITS } from "../limits.ts";
import { panicOf } from "./panic.ts";

const ownLine = z.looseObject({
  source: z.string(),
  level: z.string().optional(),
  message: z.string().optional(),
  /** Of an uncaught error. */
  stack: z.string().optional(),
  cause: z.string().optional(),
});

/**
 * The last lines that an owner's program, or another of ours, said itself. Lines that it passes on from its guest are not
 * among them: a guest decides what they say.
 */
export class OwnerWords {
  readonly #process: "owner" | "ledger" | WorkerKind;
  readonly #lines: string[] = [];
  #failure: string | null = null;

  constructor(process: "owner" | "ledger" | WorkerKind = "owner") {
    this.#process = process;
  }

  /** The message of an own line of JSON, null for anything else. */
  take(line: string): string | null {
    const parsed = line.startsWith("{") ? ownLine.safeParse(jsonOf(line)) : null;
    if (parsed?.success === true) {
      const { source, level, message, stack, cause } = parsed.data;
      if (source !== this.#process) return null;
      if (level === "error") this.#failure = stack ?? (cause === undefined ? null : `${message}: ${cause}`);
      return message ?? null;
    }
    this.#lines.push(line);
    if (this.#lines.length > TROUBLE_LIMITS.ownerLinesKept) this.#lines.shift();
    return null;
  }

  /** `how` is how it ended; without an error of its own that is all there is to say. */
  panic(end: { pid: number; time: Date; how: string; vmId: string | null }): Panic {
    const stack = stackIn(this.#lines) ?? this.#failure;
    const thrown = stack === null ? `ended (${end.how})` : stack;
    const made = panicOf({ process: this.#process, pid: end.pid, time: end.time, thrown });
    // Without a place in our code, the VM is the place.
    return made.location === null && end.vmId !== null ? { ...made, location: `VM ${end.vmId}` } : made;
  }
}

/** As Node prints an uncaught error: a place in a file, the error's text, its frames. */
function stackIn(lines: readonly string[]): string | null {
  const first = lines.findIndex((line) => /^(Uncaught )?[A-Za-z.]*(Error|Failure|Bug)\b/.test(line));
  if (first >= 0) return lines.slice(first, first + 1 + TROUBLE_LIMITS.panicFramesMax).join("\n");
  return lines.find((line) => /FATAL ERROR|out of memory/i.test(line)) ?? null;
}

function jsonOf(line: string): unknown {
  try {
    return JSON.parse(line) as unknown;
  } catch {
    // Cut at the limit of a line, or no JSON after all: words like any other.
    return null;
  }
}
