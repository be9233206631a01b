import { CapsemError } from "./error.ts";
import type { Tokens } from "./token.ts";
import type { ByteSource, Transport } from "./transport.ts";

const UNAUTHORIZED = 401;

/**
 * The same transport with the gateway's token. A 401 means that nothing was executed, so a request whose body can be
 * sent again is sent once more with a newly read token, mutations too; a stream was read already and is not.
 */
export function authorized(inner: Transport, tokens: Tokens): Transport {
  return {
    request: async (method, path, options) => {
      const send = (token: string) =>
        inner.request(method, path, {
          ...options,
          headers: { ...options.headers, authorization: `Bearer ${token}` },
        });
      const token = await tokens.current();
      const answer = await send(token);
      if (answer.status !== UNAUTHORIZED) return answer;
      const renewed = await tokens.renew(token);
      if (renewed === null || !isReplayable(options.body)) return answer;
      answer.cancel();
      return send(renewed);
    },
    socket: async (path, protocols, options) => {
      const open = (token: string) => inner.socket(path, [`capsem.token.${token}`, ...protocols], options);
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

function isReplayable(body: ByteSource | undefined): boolean {
  return body === undefined || body instanceof Uint8Array || body instanceof Blob;
}
