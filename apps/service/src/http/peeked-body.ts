import type { IncomingMessage } from "node:http";
import { apiFailure } from "@capsem/api";
import { ignore, within } from "@capsem/base";
import { HTTP_LIMITS } from "../limits.ts";
import type { BodyBytes } from "./handler.ts";
import { bodyChunks } from "./request-body.ts";

/** A request's bytes, of which the first may be looked at before anybody takes them. */
export function bodyOf(request: IncomingMessage): BodyBytes {
  const declared = request.headers["content-length"];
  return peekable(
    (bytesMax) => bodyChunks(request, bytesMax),
    declared === undefined ? null : Number(declared),
  );
}

/** `open` is called once. What was peeked is kept as it came and handed on first. */
export function peekable(
  open: (bytesMax: number) => AsyncIterable<Uint8Array>,
  declaredBytes: number | null,
): BodyBytes {
  const peeked: Uint8Array[] = [];
  let source: AsyncIterator<Uint8Array> | null = null;
  return {
    declaredBytes,
    async peek(wanted, bytesMax, signal) {
      source ??= open(bytesMax)[Symbol.asyncIterator]();
      // Whoever looked before has read some of it.
      let bytes = peeked.reduce((sum, chunk) => sum + chunk.length, 0);
      while (bytes < wanted) {
        const next = source.next();
        ignore(next);
        const { done, value } = await within(next, HTTP_LIMITS.uploadIdleMs, late, signal);
        if (done === true) break;
        peeked.push(value);
        bytes += value.length;
      }
      return Buffer.concat(peeked).subarray(0, wanted);
    },
    async *chunks(bytesMax) {
      source ??= open(bytesMax)[Symbol.asyncIterator]();
      const rest = source;
      try {
        for (let chunk = peeked.shift(); chunk !== undefined; chunk = peeked.shift()) yield chunk;
        for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
      } finally {
        // Whoever takes no more lets go of the request, as a plain loop over it does.
        await rest.return?.();
      }
    },
  };
}

function late() {
  return apiFailure("timeout", `Cannot read the upload: nothing came for ${HTTP_LIMITS.uploadIdleMs} ms`);
}
