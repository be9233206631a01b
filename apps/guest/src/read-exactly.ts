import { Failure } from "@capsem/base";
import { createByteReader, type MuxStream } from "@capsem/wire";

/** `count` bytes and then the stream's end; anything else throws Failure. The caller has bounded `count`. */
export async function readExactly(stream: MuxStream, count: number): Promise<Uint8Array> {
  const reader = createByteReader(stream);
  const bytes = await reader.take(count);
  if (bytes === null) throw new Failure("truncated", "the stream is empty");
  if ((await reader.take(1)) !== null) throw new Failure("too_large", `more than ${count} bytes came`);
  return bytes;
}
