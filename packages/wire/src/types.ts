/** Which end of a lane we are. Stream ids are odd from the guest and even from the host. */
export type Role = "host" | "guest";

/** Where a mux writes. `write` returns false when the caller should wait for drain (as Node's streams do). */
export interface Transport {
  write(chunk: Uint8Array): boolean;
  onDrain(listener: () => void): void;
  close(): void;
}

export type ResetCode =
  | "cancelled"
  | "refused"
  | "no_such_port"
  | "too_many_streams"
  | "protocol_error"
  | "internal"
  | "lane_lost";

/** Who writes a stream's data frames to the same transport in its place, inside its credit. */
export interface Borrower {
  /** The peer granted that many bytes more. */
  granted(bytes: number): void;
  /** The stream is over, and nothing of it may follow what is written from now on. Not called after `takeBack`. */
  revoked(cause: Error): void;
}

/** Why a whole mux ended. */
export interface MuxEnd {
  readonly kind: "closed" | "lost" | "violation";
  readonly message: string;
}

/**
 * One ordered flow in both directions. Whoever gets a stream ends or resets it on every path: it is over when
 * both sides have ended and what came was read, so a stream that is not read to null must be reset.
 * `read` grants credit back as chunks are taken; at most `streamCreditBytes` are ever buffered.
 */
export interface MuxStream {
  readonly id: number;
  readonly port: number;
  readonly tag: string;
  /**
   * The next chunk (never empty), or null after the peer's end. Throws Failure("reset" | "lane_lost"); the
   * detail of "reset" is its code. One reader at a time.
   */
  read(): Promise<Uint8Array | null>;
  /**
   * Resolves once every byte is inside the credit and handed to the transport, which may still hold the chunk:
   * never change it afterwards. Writes keep their order. Throws as `read` does.
   */
  write(chunk: Uint8Array): Promise<void>;
  /**
   * Lends this side's direction, with the credit that is returned. Until `takeBack` nothing may be written or ended
   * here. Throws what `write` would.
   */
  lend(borrower: Borrower): number;
  /** The borrower has written its last frame; `credit` is what it did not use. */
  takeBack(credit: number): void;
  /** Half-close: nothing more is written; reading goes on. Idempotent. */
  end(): void;
  /** Ends both directions at once. Idempotent. */
  reset(code: ResetCode): void;
  /** Resolves when both directions are over, for whatever cause; never rejects. */
  readonly closed: Promise<void>;
}

export interface Mux {
  /** Bytes from the peer, any split. */
  receive(chunk: Uint8Array): void;
  /** The transport ended or failed. */
  lost(message: string): void;
  open(port: number, tag: string): MuxStream;
  /** Ends every stream and closes the transport. */
  close(): void;
  readonly ended: Promise<MuxEnd>;
  readonly streamCount: number;
  /** Whether the bytes received so far end with a frame. */
  readonly isBetweenFrames: boolean;
}

export interface MuxOptions {
  readonly role: Role;
  readonly transport: Transport;
  /** A stream that the peer opened. Throw or reset to refuse it. */
  readonly onOpen: (stream: MuxStream) => void;
}
