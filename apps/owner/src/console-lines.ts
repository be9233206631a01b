import { OWNER_LIMITS } from "./limits.ts";

/**
 * Splits the guest's console into log lines. The guest is hostile: a line has a limit, a second has a limit,
 * and what goes over is counted. A line that is a JSON object is the guest agent's, as far as the guest says.
 */
export function consoleLines(write: (line: string) => void, now: () => number): (chunk: Uint8Array) => void {
  let pending = "";
  let second = 0;
  let lines = 0;
  let dropped = 0;

  const emit = (text: string) => {
    const current = Math.floor(now() / 1000);
    if (current !== second) {
      if (dropped > 0) write(entry("console", `${dropped} lines dropped`));
      second = current;
      lines = 0;
      dropped = 0;
    }
    lines += 1;
    if (lines > OWNER_LIMITS.consoleLinesPerSecond) dropped += 1;
    else write(entry(text.startsWith('{"') ? "guest" : "console", text));
  };

  return (chunk) => {
    pending += Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString("latin1");
    const parts = pending.split("\n");
    pending = (parts.pop() ?? "").slice(0, OWNER_LIMITS.consoleLineBytesMax);
    for (const part of parts) {
      const text = Buffer.from(
        part.slice(0, OWNER_LIMITS.consoleLineBytesMax).replace(/\r$/, ""),
        "latin1",
      ).toString("utf8");
      if (text !== "") emit(text);
    }
  };
}

function entry(source: "console" | "guest", line: string): string {
  return `${JSON.stringify({ source, line })}\n`;
}
