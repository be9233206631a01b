import type { ServerResponse } from "node:http";
import { errorText } from "@capsem/mcp-protocol";

/** An answer of the way in itself: no call was made. */
export interface HttpRefusal {
  readonly status: number;
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
  /** Of the request, where it could be read. */
  readonly idText?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  /** What the client still sends is not read. */
  readonly closes?: boolean;
}

export function refuse(response: ServerResponse, refusal: HttpRefusal): void {
  if (response.headersSent || response.destroyed) return;
  const { status, code, message, data, idText, headers, closes } = refusal;
  const body = Buffer.from(errorText(idText ?? null, code, message, data));
  response.writeHead(status, {
    "Content-Type": "application/json",
    "Content-Length": String(body.length),
    ...(closes === true ? { Connection: "close" } : {}),
    ...headers,
  });
  response.end(body);
}

/** An answer without a body. */
export function acknowledge(response: ServerResponse, status: 202 | 204): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(status, status === 202 ? { "Content-Length": "0" } : {}).end();
}
