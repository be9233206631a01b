import { StringDecoder } from "node:string_decoder";
import { LOG_LIMITS } from "../limits.ts";
import { droppedLine, type LineGate } from "./line-gate.ts";

const NEWLINE = 10;

/**
 * Splits bytes into lines, without their end. A line above `bytesMax` is cut there and the rest of it dropped: the
 * writer decides about nothing but its own line. With a gate it does not decide how many there are either: what is too
 * much is dropped as cheaply as can be, and a line says how much that was.
 */
export function createLineSplitter(
  bytesMax: number,
  onLine: (line: string) => void,
  gate: LineGate | null = null,
): LineSplitter {
  let held: Buffer[] = [];
  let heldBytes = 0;

  const take = (part: Buffer, isKept: boolean) => {
    const room = bytesMax - heldBytes;
    if (room <= 0 || part.length === 0) return;
    const taken = part.length > room ? part.subarray(0, room) : part;
    // A copy: a small view would keep the whole chunk alive.
    held.push(isKept ? Buffer.from(taken) : taken);
    heldBytes += taken.length;
  };
  const tellDropped = () => {
    const dropped = gate?.takeDropped() ?? 0;
    if (dropped > 0) onLine(droppedLine(dropped));
  };
  const emit = () => {
    tellDropped();
    const bytes = Buffer.concat(held);
    // Of a line that was cut, half a character at its end is no part of it.
    const line = bytes.length < bytesMax ? bytes.toString("utf8") : new StringDecoder("utf8").write(bytes);
    forget();
    onLine(line.endsWith("\r") ? line.slice(0, -1) : line);
  };
  const forget = () => {
    held = [];
    heldBytes = 0;
  };
  return {
    push(chunk) {
      let rest = chunk;
      for (let end = rest.indexOf(NEWLINE); end !== -1; end = rest.indexOf(NEWLINE)) {
        take(rest.subarray(0, end), false);
        rest = rest.subarray(end + 1);
        if (gate === null || gate.mayPass(heldBytes)) emit();
        else {
          forget();
          const next = rest.lastIndexOf(NEWLINE) + 1;
          gate.drop(1 + countLines(rest, next));
          rest = rest.subarray(next);
        }
      }
      take(rest, true);
    },
    end() {
      if (heldBytes > 0) emit();
      else tellDropped();
    },
  };
}

/** A line as long as a line may be has been cut, or might as well have been. */
export function isCutLine(line: string): boolean {
  return line.length * 4 > LOG_LIMITS.lineBytesMax && Buffer.byteLength(line) > LOG_LIMITS.lineBytesMax - 4;
}

/** Whole lines before `end`. */
function countLines(bytes: Buffer, end: number): number {
  let lines = 0;
  for (let at = 0; at < end; at++) if (bytes[at] === NEWLINE) lines += 1;
  return lines;
}

export interface LineSplitter {
  push(chunk: Buffer): void;
  end(): void;
}
