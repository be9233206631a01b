import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@capsem/base";
import * as z from "zod";
import { LOG_LIMITS } from "../limits.ts";
import { LogFile } from "./log-file.ts";
import { readLogWindow } from "./log-window.ts";
import { visible } from "./visible.ts";

export const VM_LOG_FILES = {
  console: "console.log",
  guest: "guest.jsonl",
  owner: "owner.jsonl",
} as const;
export type VmLogSource = keyof typeof VM_LOG_FILES;

const ownerLine = z.looseObject({
  source: z.enum(["console", "guest", "owner"]),
  line: z.string().optional(),
  message: z.string().optional(),
});

/**
 * Sorts an owner's stderr into the VM's log files and keeps the last lines of console and owner for a person
 * who asks why it failed. Console and guest text is the guest's: control characters are shown, not passed on.
 */
export class VmLogs {
  readonly #files: Readonly<Record<VmLogSource, LogFile>>;
  readonly #tail: string[] = [];

  constructor(folder: string, onError: (thrown: unknown) => void = () => undefined) {
    this.#files = {
      console: new LogFile(join(folder, VM_LOG_FILES.console), { onError }),
      guest: new LogFile(join(folder, VM_LOG_FILES.guest), { onError }),
      owner: new LogFile(join(folder, VM_LOG_FILES.owner), { onError }),
    };
  }

  static async open(folder: string, onError?: (thrown: unknown) => void): Promise<VmLogs> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    return new VmLogs(folder, onError);
  }

  /** One line of an owner's stderr; what is not its JSON is kept as the owner's own words. */
  take(line: string): void {
    if (line === "") return;
    const { source, text, shown } = sort(line);
    this.#files[source].append(text);
    if (source === "guest") return;
    this.#tail.push(shown);
    if (this.#tail.length > LOG_LIMITS.tailLines) this.#tail.shift();
  }

  tail(lines: number = LOG_LIMITS.tailLinesShown): string[] {
    return this.#tail.slice(-lines);
  }

  async flush(): Promise<void> {
    await Promise.all(Object.values(this.#files).map((file) => file.flush()));
  }

  /** For a VM without an owner: the tail stays, the descriptors go. */
  async release(): Promise<void> {
    await Promise.all(Object.values(this.#files).map((file) => file.release()));
  }

  async close(): Promise<void> {
    await Promise.all(Object.values(this.#files).map((file) => file.close()));
  }
}

/** The last lines of console and owner in a VM's log files: what its user would have seen of a failure. Never throws. */
export async function readLogTail(
  folder: string,
  lines: number = LOG_LIMITS.tailLinesShown,
): Promise<string[]> {
  const read = async (source: VmLogSource, tail: number) => {
    try {
      const maxBytes = LOG_LIMITS.windowBytesMax;
      return (await readLogWindow(join(folder, VM_LOG_FILES[source]), { tail, maxBytes })).lines;
    } catch (thrown) {
      return [`${VM_LOG_FILES[source]} cannot be read: ${messageOf(thrown)}`];
    }
  };
  const half = Math.floor(lines / 2);
  const [console, owner] = await Promise.all([read("console", half), read("owner", lines - half)]);
  return [...console, ...owner.map((line) => sort(line).shown)];
}

function sort(line: string): { source: VmLogSource; text: string; shown: string } {
  const parsed = ownerLine.safeParse(parseJson(line));
  if (!parsed.success) {
    const text = visible(line);
    return {
      source: "owner",
      text: JSON.stringify({ source: "owner", level: "error", message: text }),
      shown: text,
    };
  }
  const { source } = parsed.data;
  const words = visible(parsed.data.line ?? parsed.data.message ?? "");
  if (source === "owner") return { source, text: line, shown: `${words}${fieldsOf(parsed.data)}` };
  return { source, text: words, shown: words };
}

/** The rest of an owner's line, where the cause of a failure usually is. */
function fieldsOf(line: Readonly<Record<string, unknown>>): string {
  const fields = Object.entries(line).filter(
    ([key]) => !["source", "time", "level", "message", "line"].includes(key),
  );
  if (fields.length === 0) return "";
  return ` ${visible(JSON.stringify(Object.fromEntries(fields)).slice(0, LOG_LIMITS.tailFieldsCharactersMax))}`;
}

function parseJson(line: string): unknown {
  if (!line.startsWith("{")) return null;
  try {
    return JSON.parse(line) as unknown;
  } catch (thrown) {
    if (thrown instanceof SyntaxError) return null;
    throw thrown;
  }
}
