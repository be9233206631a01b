import { type ContractParams, type ContractResult, EGRESS_METHODS } from "@capsem/api";
import { Failure } from "@capsem/base";
import type { RpcContext, StreamHandler } from "@capsem/rpc";
import { asHttpFailure } from "./error.ts";
import type { HttpBody } from "./http-client.ts";

export type HttpCall = ContractParams<typeof EGRESS_METHODS, "http.fetch">;

export interface HttpAnswer {
  readonly head: ContractResult<typeof EGRESS_METHODS, "http.fetch">;
  /** Read to its end, or cancelled when the caller goes. */
  readonly body: HttpBody;
}

/** Makes one request. The signal aborts when its caller has gone; what is thrown is what the caller gets. */
export type HttpServe = (call: HttpCall, signal: AbortSignal) => Promise<HttpAnswer>;

/** What egress serves on the channel of one client. */
export function httpMethods(serve: HttpServe): Readonly<Record<string, StreamHandler>> {
  return {
    "http.fetch": async (raw: unknown, { signal }: RpcContext) => {
      const parsed = EGRESS_METHODS["http.fetch"].params.safeParse(raw);
      if (!parsed.success) {
        const issue = parsed.error.issues[0];
        const where = `${issue?.path.join(".") ?? ""} ${issue?.message ?? ""}`.trim();
        throw new Failure("invalid_input", `Cannot fetch: ${where}`);
      }
      let answer: HttpAnswer;
      try {
        answer = await serve(parsed.data, signal);
      } catch (thrown) {
        throw thrown instanceof Failure ? asHttpFailure(thrown) : thrown;
      }
      const { head, body } = answer;
      const onAbort = () => body.cancel();
      signal.addEventListener("abort", onAbort, { once: true });
      if (signal.aborted) onAbort();
      return {
        result: head,
        async run(stream) {
          try {
            // One chunk is under way while the next one is awaited: a slow caller leaves the rest with the server.
            for (let chunk = await body.read(); chunk !== null; chunk = await body.read()) {
              await stream.write(chunk);
            }
          } finally {
            signal.removeEventListener("abort", onAbort);
            body.cancel();
          }
        },
      };
    },
  };
}
