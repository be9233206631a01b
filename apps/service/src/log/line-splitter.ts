/**
 * Splits bytes into lines, without their end. A line above `bytesMax` is cut there and the rest of it dropped:
 * the writer decides about nothing but its own line.
 */
export function createLineSplitter(bytesMax: number, onLine: (line: string) => void): LineSplitter {
  let held: Buffer[] = [];
  let heldBytes = 0;

  const take = (part: Buffer) => {
    const room = bytesMax - heldBytes;
    if (room <= 0 || part.length === 0) return;
    const kept = part.length > room ? part.subarray(0, room) : part;
    held.push(kept);
    heldBytes += kept.length;
  };
  const emit = () => {
    const line = Buffer.concat(held).toString("utf8");
    held = [];
    heldBytes = 0;
    onLine(line.endsWith("\r") ? line.slice(0, -1) : line);
  };
  return {
    push(chunk) {
      let rest = chunk;
      for (let end = rest.indexOf(10); end !== -1; end = rest.indexOf(10)) {
        take(rest.subarray(0, end));
        emit();
        rest = rest.subarray(end + 1);
      }
      // A copy: a small view would keep the whole chunk alive.
      take(Buffer.from(rest));
    },
    end() {
      if (heldBytes > 0) emit();
    },
  };
}

export interface LineSplitter {
  push(chunk: Buffer): void;
  end(): void;
}
