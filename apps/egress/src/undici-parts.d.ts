/** Of the library those parts alone which dial, as far as they are used: the rest would double the program. */
declare module "undici/lib/dispatcher/client.js" {
  import type { Connector } from "undici/lib/core/connect.js";

  export interface ClientOptions {
    readonly connect: Connector;
    readonly pipelining: number;
    readonly allowH2: boolean;
    /** Milliseconds, as all of them; 0: none. */
    readonly headersTimeout: number;
    readonly bodyTimeout: number;
    readonly keepAliveTimeout: number;
    readonly keepAliveMaxTimeout: number;
    readonly maxHeaderSize: number;
  }

  export interface DispatchOptions {
    readonly path: string;
    readonly method: string;
    /** Names and values in turn. */
    readonly headers: string[];
    readonly body: Uint8Array | null;
    /** The connection is closed behind it. */
    readonly reset: boolean;
    readonly idempotent: boolean;
  }

  /** The form that has headers as they came. */
  export interface DispatchHandler {
    onConnect(abort: (cause?: Error) => void): void;
    /** False: no more for now. */
    onHeaders(status: number, headers: Buffer[], resume: () => void): boolean;
    onData(chunk: Buffer): boolean;
    onComplete(): void;
    onError(cause: unknown): void;
  }

  /** One connection, made when it is needed. */
  export default class Client {
    constructor(origin: string, options: ClientOptions);
    dispatch(options: DispatchOptions, handler: DispatchHandler): boolean;
    destroy(): Promise<void>;
    on(event: "disconnect", listener: () => void): this;
  }
}

declare module "undici/lib/core/connect.js" {
  import type { LookupFunction, Socket } from "node:net";
  import type { SecureContext } from "node:tls";

  export type Connector = (
    options: unknown,
    done: (cause: Error | null, socket: Socket | null) => void,
  ) => void;

  export interface ConnectOptions {
    readonly lookup: LookupFunction;
    readonly timeout: number;
    readonly autoSelectFamily: boolean;
    readonly maxCachedSessions: number;
    readonly secureContext: SecureContext;
  }

  export default function buildConnector(options: ConnectOptions): Connector;
}
