import type { MuxEnd, MuxStream } from "@capsem/wire";

export interface CallOptions {
  /** From now to the answer. Without it the call waits until it is answered, aborted, or the peer is lost. */
  timeoutMs?: number;
  signal?: AbortSignal;
  /** A traceparent, passed on as it is. */
  trace?: string;
}

export interface RpcContext {
  /** Aborts when the caller gives up, its time is over, or the peer is lost. */
  readonly signal: AbortSignal;
  /** What is left now of the caller's time, or undefined when it set none. */
  readonly timeLeftMs: number | undefined;
  readonly trace: string | undefined;
  readonly stream: MuxStream;
}

/** The answer of a call. A thrown Failure reaches the caller with its kind; anything else as "internal". */
export type Handler = (params: unknown, context: RpcContext) => Promise<unknown>;

export interface StreamAnswer {
  readonly result: unknown;
  /**
   * Called once the result is on its way. When it resolves this side is ended and what the caller still sends
   * is discarded; when it rejects the stream is reset.
   */
  run(stream: MuxStream): Promise<void>;
}

export type StreamHandler = (params: unknown, context: RpcContext) => Promise<StreamAnswer>;

export interface OpenedCall {
  readonly result: unknown;
  /** Raw bytes both ways. The caller ends or resets it on every path. */
  readonly stream: MuxStream;
}

/**
 * One end of a link between two processes, able to call and to be called. Failures of a call: what the handler
 * threw, or "timeout", "cancelled", "peer_lost", "no_such_method", "too_many_streams", "too_large",
 * "bad_message", "internal".
 */
export interface Peer {
  call(method: string, params: unknown, options?: CallOptions): Promise<unknown>;
  /** A call whose stream stays open after the answer. `options` bound the answer; `signal` also the stream. */
  open(method: string, params: unknown, options?: CallOptions): Promise<OpenedCall>;
  close(): void;
  readonly ended: Promise<MuxEnd>;
  /** Calls and opened streams under way, both directions. */
  readonly streamCount: number;
}
