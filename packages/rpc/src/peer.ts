import { createMux, type DuplexLike, muxTransport, pump, type Role } from "@capsem/wire";
import { type CalleeOptions, serveCall } from "./callee.ts";
import { callMethod, openMethod } from "./caller.ts";
import type { Handler, Peer, StreamHandler } from "./types.ts";

export interface PeerOptions {
  /** The two ends have different roles; which is which has no other meaning. */
  readonly role: Role;
  /** Owned by the peer from now on: it is destroyed when the peer ends. */
  readonly duplex: DuplexLike;
  readonly handlers?: Readonly<Record<string, Handler>>;
  readonly streaming?: Readonly<Record<string, StreamHandler>>;
  /** Told of everything a handler threw that is not a Failure: log it. */
  readonly onInternalError?: (method: string, thrown: unknown) => void;
}

export function createPeer(options: PeerOptions): Peer {
  const callee: CalleeOptions = {
    handlers: options.handlers ?? {},
    streaming: options.streaming ?? {},
    onInternalError: options.onInternalError ?? (() => undefined),
  };
  const mux = createMux({
    role: options.role,
    transport: muxTransport(options.duplex),
    onOpen: (stream) => void serveCall(stream, callee),
  });
  pump(options.duplex, mux);
  return {
    call: (method, params, callOptions = {}) => callMethod(mux, method, params, callOptions),
    open: (method, params, callOptions = {}) => openMethod(mux, method, params, callOptions),
    close: () => mux.close(),
    ended: mux.ended,
    get streamCount() {
      return mux.streamCount;
    },
  };
}
