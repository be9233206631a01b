import { concat, utf8 } from "@capsem/base";
import { CapsemError } from "./error.ts";
import type { ByteSource } from "./transport.ts";

/** What a caller may give for bytes. Text is sent as UTF-8. */
export type ByteInput =
  | string
  | ArrayBuffer
  | ByteSource
  | ReadableStream<Uint8Array>
  | AsyncIterable<string | Uint8Array>;

export function toByteSource(input: ByteInput): ByteSource {
  if (typeof input === "string") return utf8(input);
  if (input instanceof Uint8Array || input instanceof Blob) return input;
  if (input instanceof ArrayBuffer) return new Uint8Array(input);
  if (isIterable(input)) return encoded(input);
  if (typeof input === "object" && input !== null && "getReader" in input) return bytesOfStream(input);
  throw new CapsemError("invalid_input", "Cannot send data: it is not text, bytes, a Blob or a stream");
}

/** A stream that must have exactly so many bytes: with others its receiver would wait, or take a part for the whole. */
export async function* exactly(source: AsyncIterable<Uint8Array>, bytes: number): AsyncGenerator<Uint8Array> {
  let left = bytes;
  const wrong = () =>
    new CapsemError(
      "invalid_input",
      `Cannot send data: it has not the ${bytes} bytes that it was said to have`,
    );
  for await (const part of source) {
    left -= part.length;
    if (left < 0) throw wrong();
    yield part;
  }
  if (left > 0) throw wrong();
}

/** A stream's bytes; leaving the loop cancels it. Not every browser can iterate a stream by itself. */
export async function* bytesOfStream(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  let finished = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        finished = true;
        return;
      }
      yield value;
    }
  } catch (thrown) {
    finished = true;
    throw thrown;
  } finally {
    if (!finished) await reader.cancel();
  }
}

/** All bytes in memory, or `too_large`. */
export async function collect(
  source: AsyncIterable<Uint8Array>,
  bytesMax: number,
  doing: string,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of source) {
    bytes += part.length;
    if (bytes > bytesMax) throw new CapsemError("too_large", `Cannot ${doing}: it is over ${bytesMax} bytes`);
    parts.push(part);
  }
  const { buffer, byteOffset, length } = concat(parts);
  // Plain bytes in every runtime, where Node's own would be a Buffer.
  return new Uint8Array(buffer, byteOffset, length);
}

async function* encoded(input: AsyncIterable<string | Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const part of input) yield typeof part === "string" ? utf8(part) : part;
}

function isIterable(input: object): input is AsyncIterable<string | Uint8Array> {
  return Symbol.asyncIterator in input;
}
