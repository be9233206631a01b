/** Bytes to send: whole, or a stream that is read no faster than the connection takes it. */
export type ByteSource = Uint8Array | Blob | AsyncIterable<Uint8Array>;

export interface RequestOptions {
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: ByteSource;
  readonly signal?: AbortSignal;
  /** Longest wait for the answer's head. Where a body is sent it starts again with every part taken. */
  readonly timeoutMs?: number;
  /** A mutation never rides on a connection that may just have been closed by the other side. */
  readonly mutates?: boolean;
}

export interface TransportAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** Read once. Leaving the loop early closes the connection. */
  readonly body: AsyncIterable<Uint8Array>;
  /** Closes the connection, also in the middle of the body. */
  cancel(): void;
}

export interface SocketOptions {
  /** Of the request that opens it. A browser sends none of its own choice. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

/** Whose end breaks a connection off. */
export const SERVICE_PEER = "the service";
export const GATEWAY_PEER = "the gateway or the service behind it";

export interface TransportSocket {
  /** The other end, in words for errors. */
  readonly peer?: string;
  /** Resolves when the connection took the bytes. */
  send(bytes: Uint8Array): Promise<void>;
  /**
   * Messages in order, text as UTF-8, ending with the connection. Read once. What is not taken slows the sender;
   * where the runtime cannot (a browser), the connection ends when too much waits, after what waits was given.
   */
  receive(): AsyncIterable<Uint8Array>;
  /** Never rejects; `code` is 1006 for a connection that was lost. */
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
  close(code?: number): void;
}

/** How calls reach a service. All failures are `CapsemError`; an HTTP error status is an answer, not a failure. */
export interface Transport {
  request(method: string, path: string, options: RequestOptions): Promise<TransportAnswer>;
  /** Rejects with the other end's error when it refuses the upgrade; see `openSocket` for one without a reason. */
  socket(path: string, protocols: readonly string[], options: SocketOptions): Promise<TransportSocket>;
  close(): void;
}

/** Nothing at all is a target as well, for programs without types. */
export function isTransport<T>(target: T | Transport): target is Transport {
  return typeof target === "object" && target !== null && "request" in target;
}
