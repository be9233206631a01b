import type { IncomingMessage } from "node:http";
import { apiFailure } from "@capsem/api";
import { HTTP_LIMITS } from "../limits.ts";

/** Yields the body and stops at the limit: a declared length above it is refused before a byte is read. */
export async function* bodyChunks(request: IncomingMessage, bytesMax: number): AsyncGenerator<Uint8Array> {
  const declared = Number(request.headers["content-length"] ?? 0);
  if (declared > bytesMax) throw tooLarge(bytesMax);
  let bytes = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    bytes += (chunk as Buffer).length;
    if (bytes > bytesMax) throw tooLarge(bytesMax);
    yield chunk as Buffer;
  }
}

/** The parsed body; an empty one is an empty object. */
export async function readJsonBody(request: IncomingMessage): Promise<unknown> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of bodyChunks(request, HTTP_LIMITS.jsonBodyBytesMax)) chunks.push(chunk);
  if (chunks.length === 0) return {};
  const text = new TextDecoder("utf-8", { fatal: true });
  try {
    return JSON.parse(text.decode(Buffer.concat(chunks))) as unknown;
  } catch (thrown) {
    throw apiFailure("invalid_input", "Cannot read the request: its body is not JSON in UTF-8", {
      cause: thrown,
    });
  }
}

function tooLarge(bytesMax: number) {
  return apiFailure("too_large", `Cannot read the request: its body is larger than ${bytesMax} bytes`);
}
