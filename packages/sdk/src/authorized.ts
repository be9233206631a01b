import { concat, textOf, utf8 } from "@capsem/base";
import { CapsemError } from "./error.ts";
import { ERROR_BYTES_MAX } from "./limits.ts";
import type { Tokens } from "./token.ts";
import type { ByteSource, Transport, TransportAnswer } from "./transport.ts";

const UNAUTHORIZED = 401;
const ERROR_STATUS_MIN = 400;

/**
 * The same transport with the gateway's token. A 401 means that nothing was executed, so a request whose body can be
 * sent again is sent once more with a newly read token, mutations too; a stream was read already and is not.
 */
export function authorized(inner: Transport, tokens: Tokens): Transport {
  return {
    request: async (method, path, options) => {
      const send = async (token: string) => {
        const headers = { ...options.headers, authorization: `Bearer ${token}` };
        return withoutToken(await inner.request(method, path, { ...options, headers }), token);
      };
      const token = await tokens.current();
      const answer = await send(token);
      if (answer.status !== UNAUTHORIZED) return answer;
      const renewed = await tokens.renew(token);
      if (renewed === null || !isReplayable(options.body)) return answer;
      answer.cancel();
      return send(renewed);
    },
    socket: async (path, protocols, options) => {
      const open = async (token: string) => {
        try {
          return await inner.socket(path, [`capsem.token.${token}`, ...protocols], options);
        } catch (thrown) {
          throw failureWithout(thrown, token);
        }
      };
      const token = await tokens.current();
      try {
        return await open(token);
      } catch (thrown) {
        if (!(thrown instanceof CapsemError) || thrown.status !== UNAUTHORIZED) throw thrown;
        const renewed = await tokens.renew(token);
        if (renewed === null) throw thrown;
        return open(renewed);
      }
    },
    close: () => inner.close(),
  };
}

/** Whatever answers may repeat what it was sent; an error's words go into logs and before models. */
function withoutToken(answer: TransportAnswer, token: string): TransportAnswer {
  return answer.status < ERROR_STATUS_MIN ? answer : { ...answer, body: bodyWithout(answer.body, token) };
}

/** An error body is one small object: what is beyond its limit is not looked at, and nobody reads it. */
async function* bodyWithout(body: AsyncIterable<Uint8Array>, token: string): AsyncGenerator<Uint8Array> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of body) {
    parts.push(part);
    bytes += part.length;
    if (bytes > ERROR_BYTES_MAX) break;
  }
  yield utf8(replaced(textOf(concat(parts)), token));
}

function failureWithout(thrown: unknown, token: string): unknown {
  if (!(thrown instanceof CapsemError) || !thrown.message.includes(token)) return thrown;
  const { kind, status, retryable, outcome, ruleId, askId } = thrown;
  // Not its cause or its faults, which may have the same words.
  const known = {
    ...(status === undefined ? {} : { status }),
    ...(ruleId === undefined ? {} : { ruleId: replaced(ruleId, token) }),
    ...(askId === undefined ? {} : { askId: replaced(askId, token) }),
  };
  return new CapsemError(kind, replaced(thrown.message, token), { ...known, retryable, outcome });
}

function replaced(text: string, token: string): string {
  return text.replaceAll(token, "[token]");
}

function isReplayable(body: ByteSource | undefined): boolean {
  return body === undefined || body instanceof Uint8Array || body instanceof Blob;
}
