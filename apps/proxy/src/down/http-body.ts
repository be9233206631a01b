import type { IncomingMessage } from "node:http";
import { Failure } from "@capsem/base";
import type { ByteBudget } from "./byte-budget.ts";
import type { DownLimits } from "./limits.ts";

/**
 * The body of a request as text. Throws Failure("too_large" | "busy" | "timeout" | "not_utf8" | "cancelled"); the rest of the
 * body is then not read.
 */
export async function readBody(
  request: IncomingMessage,
  budget: ByteBudget,
  limits: DownLimits,
): Promise<string> {
  const announced = Number(request.headers["content-length"] ?? 0);
  if (announced > limits.messageBytesMax) throw tooLarge(limits);
  let held = 0;
  try {
    return await new Promise<string>((resolve, reject) => {
      const chunks: Buffer[] = [];
      const fail = (failure: Failure) => {
        clearTimeout(timer);
        // The room is given back: what HTTP still makes of the rest of the body takes none.
        request.off("data", take);
        request.pause();
        reject(failure);
      };
      const timer = setTimeout(
        () => fail(new Failure("timeout", `Cannot read body: not whole after ${limits.bodyTimeoutMs} ms`)),
        limits.bodyTimeoutMs,
      );
      const take = (chunk: Buffer) => {
        const wanted = held + chunk.length;
        if (wanted > limits.messageBytesMax) return fail(tooLarge(limits));
        if (!budget.change(held, wanted)) {
          return fail(new Failure("busy", "Cannot read body: too much is being read", { retryable: true }));
        }
        held = wanted;
        chunks.push(chunk);
      };
      request.on("data", take);
      request.once("end", () => {
        clearTimeout(timer);
        try {
          resolve(decode(chunks));
        } catch (thrown) {
          reject(thrown);
        }
      });
      request.once("close", () => fail(new Failure("cancelled", "Cannot read body: the client left")));
    });
  } finally {
    budget.change(held, 0);
  }
}

function decode(chunks: readonly Buffer[]): string {
  const [first] = chunks;
  const whole = chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(whole);
  } catch (cause) {
    throw new Failure("not_utf8", "Cannot read body: it is not UTF-8", { cause });
  }
}

function tooLarge(limits: DownLimits): Failure<"too_large"> {
  return new Failure("too_large", `Cannot read body: more than ${limits.messageBytesMax} bytes`);
}
