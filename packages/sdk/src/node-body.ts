import type { ClientRequest } from "node:http";
import { bytesOfStream } from "./byte-source.ts";
import type { ByteSource } from "./transport.ts";

/** Sends the body no faster than the connection takes it, and ends the request. */
export async function sendBody(
  request: ClientRequest,
  body: ByteSource | undefined,
  progressed: () => void,
): Promise<void> {
  if (body === undefined || body instanceof Uint8Array) {
    request.end(body);
    return;
  }
  let over = false;
  const ended = new Promise<void>((resolve) => {
    const end = () => {
      over = true;
      resolve();
    };
    // An answer before the body's end is a refusal: what is left of the body is not sent.
    request.once("close", end).once("error", end).once("response", end);
  });
  for await (const part of body instanceof Blob ? bytesOfBlob(body) : body) {
    if (over) return;
    if (!request.write(part)) {
      const drained = new Promise<void>((resolve) => request.once("drain", resolve));
      await Promise.race([drained, ended]);
    }
    progressed();
  }
  if (!over) request.end();
}

function bytesOfBlob(blob: Blob): AsyncIterable<Uint8Array> {
  return bytesOfStream(blob.stream() as ReadableStream<Uint8Array>);
}
