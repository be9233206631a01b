import { Failure } from "@capsem/base";
import { getU32 } from "./frame.ts";
import { ReceiveQueue } from "./receive-queue.ts";
import type { MuxStream } from "./types.ts";

/** Takes exact counts of bytes from a stream, whatever its chunks. One reader at a time. */
export interface ByteReader {
  /** `count` bytes, or null when the stream ended before the first. Throws Failure("truncated") within. */
  take(count: number): Promise<Uint8Array | null>;
  /** A value after its u32 length, or null at a clean end. Throws Failure("too_large") before any of it is read. */
  takeSized(bytesMax: number): Promise<Uint8Array | null>;
  /** What was read from the stream and not taken. The reader is then empty. */
  rest(): Uint8Array;
}

export function createByteReader(stream: Pick<MuxStream, "read">): ByteReader {
  let held: Uint8Array = new Uint8Array(0);

  async function take(count: number): Promise<Uint8Array | null> {
    if (held.length === 0 && count > 0) {
      const chunk = await stream.read();
      if (chunk === null) return null;
      held = chunk;
    }
    if (held.length < count) held = await gather(stream, held, count);
    const taken = held.subarray(0, count);
    held = held.subarray(count);
    return taken;
  }

  return {
    take,
    // One wait where a chunk holds it whole, which is nearly always.
    async takeSized(bytesMax) {
      if (held.length === 0) {
        const chunk = await stream.read();
        if (chunk === null) return null;
        held = chunk;
      }
      if (held.length < 4) held = await gather(stream, held, 4);
      const length = getU32(held, 0);
      if (length > bytesMax) {
        throw new Failure("too_large", `Cannot read message: ${length} bytes, more than ${bytesMax}`);
      }
      const end = 4 + length;
      if (held.length < end) held = await gather(stream, held, end);
      const body = held.subarray(4, end);
      held = held.subarray(end);
      return body;
    },
    rest() {
      const left = held;
      held = new Uint8Array(0);
      return left;
    },
  };
}

/** At least `count` bytes that begin with `start`. Room is made for what came, not for what was announced. */
async function gather(
  stream: Pick<MuxStream, "read">,
  start: Uint8Array,
  count: number,
): Promise<Uint8Array> {
  const queue = new ReceiveQueue();
  if (start.length > 0) queue.push(start);
  while (queue.byteLength < count) {
    const chunk = await stream.read();
    if (chunk === null) throw truncated();
    queue.push(chunk);
  }
  return queue.takeAll();
}

function truncated(): Failure {
  return new Failure("truncated", "Cannot read message: the stream ended within it");
}
