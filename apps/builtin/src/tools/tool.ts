import type { PagePool } from "../page-pool.ts";
import type { WebAnswer, WebParts } from "../web-fetch.ts";

export interface ToolParts extends WebParts {
  readonly pages: Pick<PagePool, "run">;
}

export interface ToolCall {
  readonly arguments: unknown;
  /** What is left of the caller's time, or the tools' own limit. */
  readonly timeoutMs: number;
  readonly traceId: string | null;
  readonly signal: AbortSignal;
}

export interface Tool {
  /** As it is listed. */
  readonly definition: { readonly name: string } & Readonly<Record<string, unknown>>;
  /** The `result` of tools/call. Throws a Failure for what becomes an error that the model reads. */
  call(call: ToolCall, parts: ToolParts): object | Promise<object>;
}

/** What was fetched, for whoever records the call. */
export function fetchFacts(answer: WebAnswer): object {
  return {
    "dev.capsem/ledger": {
      url: answer.url,
      status: answer.status,
      bytes_received: answer.bytesReceived,
      redirects: answer.redirects.length,
    },
  };
}

/** An answer that says that it failed is one that failed, and is given all the same. */
export function isFailedStatus(status: number): boolean {
  return status >= 400;
}
