import type { ClientRequest } from "node:http";
import { bytesOfStream } from "./byte-source.ts";
import { UNHEARD_BYTES_MAX } from "./limits.ts";
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
  let unheard = 0;
  for await (const part of body instanceof Blob ? bytesOfBlob(body) : body) {
    // A write that the system takes at once comes back without a look at what has arrived: a refusal would be missed
    // until the other end, which waits for nobody for ever, has closed the connection over it.
    if (unheard >= UNHEARD_BYTES_MAX) {
      await lookTwice();
      unheard = 0;
    }
    if (over) return;
    unheard += part.length;
    if (!request.write(part)) {
      const drained = new Promise<void>((resolve) => request.once("drain", resolve));
      await Promise.race([drained, ended]);
    }
    progressed();
  }
  if (!over) request.end();
}

/** What arrives in the turn of the event loop that is under way is read in the next one. */
async function lookTwice(): Promise<void> {
  for (let turn = 0; turn < 2; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

function bytesOfBlob(blob: Blob): AsyncIterable<Uint8Array> {
  return bytesOfStream(blob.stream() as ReadableStream<Uint8Array>);
}
