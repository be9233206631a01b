import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import type { Failure } from "@capsem/base";
import type { Admitted } from "./admission.ts";
import type { Headers } from "./cors.ts";
import { HTTP_LIMITS } from "./limits.ts";
import { headersToClient, headersToService } from "./passed-headers.ts";
import { pumpBody } from "./pump-body.ts";
import { endWhenSent } from "./send-error.ts";
import { lostFailure, type ServiceLink } from "./service-link.ts";

/**
 * Carries one admitted request to the service and its answer back, both as streams. A side that goes away takes the
 * other along. Rejects with a Failure while nothing of the answer was sent.
 */
export async function forward(
  link: ServiceLink,
  admitted: Admitted,
  request: IncomingMessage,
  response: ServerResponse,
  headers: Headers,
): Promise<void> {
  let outgoing: ClientRequest | null = null;
  const leave = () => {
    if (!response.writableFinished) outgoing?.destroy();
  };
  response.once("close", leave);
  const attempt = async (isFresh: boolean): Promise<IncomingMessage> => {
    const asked = {
      method: admitted.route.method,
      target: admitted.target,
      headers: headersToService(request.headers),
    };
    outgoing = isFresh ? await link.openFresh(asked) : link.readKept(asked);
    if (response.destroyed) leave();
    return await answerOf(outgoing, admitted, request);
  };
  let answer: IncomingMessage;
  try {
    answer = await attempt(admitted.route.mutates || hasBody(admitted));
  } catch (thrown) {
    // We cut the service's request because the client is gone: there is nobody to tell.
    if (response.destroyed) return;
    if (!(thrown instanceof StaleConnection)) throw thrown;
    answer = await attempt(true);
  }
  relay(answer, request, response, headers);
}

/** A kept connection that the service had closed while we wrote to it: reading once more is safe. */
class StaleConnection extends Error {}

function answerOf(
  outgoing: ClientRequest,
  admitted: Admitted,
  request: IncomingMessage,
): Promise<IncomingMessage> {
  const { mutates } = admitted.route;
  return new Promise((resolve, reject) => {
    outgoing.once("response", resolve);
    // An error after the answer's head shows in the answer, which then ends before its end.
    outgoing.on("error", (thrown) => {
      const isStale = outgoing.reusedSocket && !mutates && CUT.has(String(codeOf(thrown)));
      reject(isStale ? new StaleConnection() : lostFailure(thrown, mutates));
    });
    if (!hasBody(admitted)) {
      outgoing.end();
      return;
    }
    const bytesMax = admitted.route.request === "json" ? HTTP_LIMITS.bodyBytesMax : Number.POSITIVE_INFINITY;
    pumpBody(request, outgoing, bytesMax).catch((failure: Failure) => {
      reject(failure);
      outgoing.destroy();
    });
  });
}

const CUT: ReadonlySet<string> = new Set(["ECONNRESET", "EPIPE"]);

function relay(
  answer: IncomingMessage,
  request: IncomingMessage,
  response: ServerResponse,
  headers: Headers,
): void {
  if (!request.complete) response.setHeader("connection", "close");
  response.writeHead(answer.statusCode ?? 502, { ...headers, ...headersToClient(answer.headers) });
  // An answer of known length is there already: its head leaves with its first bytes. Another may begin late.
  if (answer.headers["content-length"] === undefined) response.flushHeaders();
  answer.pipe(response, { end: false });
  answer.once("end", () => endWhenSent(request, response));
  answer.on("error", () => response.destroy());
  answer.once("close", () => {
    if (!answer.complete) response.destroy();
  });
}

function hasBody({ route }: Admitted): boolean {
  return route.request === "json" || route.request === "bytes";
}

function codeOf(thrown: unknown): unknown {
  return thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
}
