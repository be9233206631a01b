// Requests as egress makes them, without anybody who admits them: for tests of what follows an answer.
import { request as ask, type IncomingMessage } from "node:http";
import { Failure, messageOf } from "@capsem/base";
import type { HttpAnswer, HttpBody, HttpCall, HttpHeader } from "@capsem/net";

export async function dial(call: HttpCall, signal: AbortSignal): Promise<HttpAnswer> {
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const asked = ask(call.url, {
      method: call.method,
      headers: Object.fromEntries(call.headers),
      signal,
      agent: false,
    });
    asked.on("response", resolve);
    asked.on("error", (error) =>
      reject(new Failure("connect_failed", `Cannot connect: ${messageOf(error)}`)),
    );
    asked.end();
  });
  const headers: HttpHeader[] = [];
  for (let at = 0; at + 1 < answer.rawHeaders.length; at += 2)
    headers.push([(answer.rawHeaders[at] ?? "").toLowerCase(), answer.rawHeaders[at + 1] ?? ""]);
  return { head: { status: answer.statusCode ?? 0, headers }, body: bodyOf(answer) };
}

function bodyOf(answer: IncomingMessage): HttpBody {
  const iterator = answer.iterator({ destroyOnReturn: true })[Symbol.asyncIterator]();
  return {
    async read() {
      const next = await iterator.next();
      return next.done === true ? null : (next.value as Uint8Array);
    },
    cancel: () => void answer.destroy(),
    [Symbol.asyncIterator]: () => iterator as AsyncIterator<Uint8Array>,
  };
}
