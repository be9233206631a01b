import type { Envelope } from "@capsem/mcp-protocol";

/** What lies between the ways in (frames, HTTP, the host) and the rail: neither knows how the other works. */

/** Of one message, as whoever sent it claims. */
export interface Origin {
  readonly processName: string | null;
}

/** A message that a text need not be made of: UTF-8 in parts, which stay unchanged until they have left. */
export interface LargeMessage {
  readonly parts: readonly Uint8Array[];
  toText(): string;
}

/**
 * One client: the stream of a framed client, a session or a single request over HTTP, or the host. Ids of its requests
 * are its own; nobody else sees an answer to them.
 */
export interface Client {
  readonly transport: "framed" | "http" | "direct";
  /** What taints one message taints what comes later on the same key: a session; over HTTP without one, the VM's own. */
  readonly taintKey: string;
  /** The era that its transport fixed: an HTTP request says its protocol version in a header. Null: not known yet. */
  readonly protocolHint: string | null;
  /** Headers `Mcp-Param-*` of its one request, by their names in lower case. Undefined where its revision has none. */
  readonly paramHeaders?: ReadonlyMap<string, string>;
  /**
   * A whole JSON-RPC message for it. `about` is the id (as JSON text) of the client's request that it belongs to: an
   * answer, progress, a request of a server in the course of it; null for what belongs to none. False: there is no way
   * to it, such as a client over HTTP that waits on no stream. What is large is an answer.
   */
  send(message: string | LargeMessage, about: string | null): Promise<boolean>;
  /** Aborts when it is gone. */
  readonly gone: AbortSignal;
}

/** For a client that takes texts. */
export function wholeText(message: string | LargeMessage): string {
  return typeof message === "string" ? message : message.toText();
}

/** What a client is to the rail, from its first message to its end. */
export interface Conversation {
  /**
   * One JSON-RPC message, whole; the ways in have checked that it is one. Never rejects: what is wrong with it is
   * answered. Calls run side by side. Resolves when nothing more comes of it: a request, when its answer was sent or there
   * will be none. `read`: the same, where the way in has read it.
   */
  receive(message: string, origin: Origin, read?: Envelope): Promise<void>;
  /** The client is gone: its calls are cancelled, its subscriptions end. */
  close(): void;
}

export interface Rail {
  open(client: Client): Conversation;
  /** A name that is ours was asked for what it does not serve; recorded, and answered by the caller. */
  reserved(request: {
    readonly host: string;
    readonly port: number | null;
    /** Null of what is no HTTP. */
    readonly method: string | null;
    readonly path: string | null;
    readonly processName: string | null;
    /** What it was answered with; null: its stream was reset. */
    readonly status: number | null;
  }): void;
}
