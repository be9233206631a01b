import type { ClientRequest, IncomingMessage } from "node:http";
import { apiFailure } from "@capsem/api";
import { bodyTooLarge } from "./admission.ts";
import { HTTP_LIMITS } from "./limits.ts";

/**
 * Writes a client's body to the service at the slower one's pace, holding no more than one chunk. Rejects with
 * `too_large` before a byte above the limit is passed on, and with `timeout` when the client says nothing for long.
 * Stops and resolves when `to` is gone, or answers before the body's end: the answer, or its absence, tells why.
 * Does not close either side.
 */
export function pumpBody(request: IncomingMessage, to: ClientRequest, bytesMax: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let bytes = 0;
    const idle = () => {
      settle();
      reject(apiFailure("timeout", `Cannot read the request: its body stood still`));
    };
    let timer = setTimeout(idle, HTTP_LIMITS.bodyIdleMs);
    const settle = () => {
      clearTimeout(timer);
      request.off("data", onData).off("end", onEnd);
      to.off("drain", onDrain).off("close", onGone).off("response", onGone);
      request.pause();
    };
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > bytesMax) {
        settle();
        reject(bodyTooLarge());
        return;
      }
      // While the service holds it up, a client that waits is not idle.
      clearTimeout(timer);
      if (to.write(chunk)) timer = setTimeout(idle, HTTP_LIMITS.bodyIdleMs);
      else request.pause();
    };
    const onDrain = () => {
      clearTimeout(timer);
      timer = setTimeout(idle, HTTP_LIMITS.bodyIdleMs);
      request.resume();
    };
    const onEnd = () => {
      settle();
      to.end();
      resolve();
    };
    const onGone = () => {
      settle();
      resolve();
    };
    request.on("data", onData).once("end", onEnd);
    to.on("drain", onDrain).once("close", onGone).once("response", onGone);
  });
}
