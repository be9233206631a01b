import type { ProxyServer } from "@capsem/api";
import { Failure } from "@capsem/base";
import { idKeyOf, NOTIFICATIONS, readEnvelope } from "@capsem/mcp-protocol";
import type { Endpoint } from "./endpoint.ts";
import type { ServerTold } from "./inbox.ts";
import type { OpenCall } from "./open-call.ts";

/** How a server is spoken to, once that is found out. */
export type Way = "modern" | "http" | "sse";

/** What a server says of itself. */
export interface ServerFacts {
  readonly name: string;
  readonly version: string;
  readonly protocol: string;
  readonly era: "legacy" | "modern";
  /** JSON, as it was written. */
  readonly capabilities: string;
  readonly instructions: string | null;
}

export interface SessionParts {
  readonly server: ProxyServer;
  readonly endpoint: Endpoint;
  readonly told: ServerTold;
}

/** An understanding with one server. */
export interface Session {
  readonly way: Way;
  readonly facts: ServerFacts;
  /** It takes no more calls; another one is to be opened. */
  readonly isOver: boolean;
  /**
   * Sends a call and reads until it is over. Throws what it ends with, where that is no answer: "session_expired" only
   * when the server certainly did not do it.
   */
  perform(call: OpenCall): Promise<void>;
  /** Sends the answer to a request that the server made in the course of a call. */
  respond(text: string): void;
  /** Sends a notification of the client, where the server's era has such. Never rejects. */
  tell(text: string): Promise<void>;
  /** The tools of a list that may be shown; what is said of headers in them is kept. */
  takeTools(items: readonly string[]): string[];
  /** Ends what belongs to no call, and tells the server; calls that are under way may end. Never rejects. */
  close(): Promise<void>;
}

/** An answer of the client to a request that the server made: sent once, and only if there was such a request. */
export function respond(call: OpenCall, text: string): void {
  const envelope = readEnvelope(text);
  if (envelope.kind !== "result" && envelope.kind !== "error") {
    throw new Failure("invalid_input", "Cannot answer the server: the message is no answer");
  }
  if (envelope.idText !== null && call.wasAsked(idKeyOf(envelope.idText))) call.via?.respond(text);
}

/** How far the client is with a request that the server made: told while there is one. */
export function notify(call: OpenCall, text: string): void {
  const envelope = readEnvelope(text);
  if (envelope.kind !== "notification" || envelope.method !== NOTIFICATIONS.progress) {
    throw new Failure("invalid_input", "Cannot tell the server: the message is no progress");
  }
  call.tell(text);
}
