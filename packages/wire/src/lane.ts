import { Failure } from "@capsem/base";
import { getU32 } from "./frame.ts";
import { WIRE_LIMITS } from "./limits.ts";
import { createMux } from "./mux.ts";
import { plainBytes } from "./plain-bytes.ts";
import { type FoundHello, SyncScanner } from "./sync-scanner.ts";
import type { Mux, MuxStream, Role, Transport } from "./types.ts";

/** What every lane end has, whatever its role. Feed it with `pump(duplex, lane)`. */
export interface Lane {
  /** Bytes from the peer, any split. */
  receive(chunk: Uint8Array): void;
  /** The transport ended or failed: nothing starts again. */
  lost(message: string): void;
  /** Ends the current mux and closes the transport. */
  close(): void;
  /** The mux of the current generation while it runs. */
  readonly mux: Mux | undefined;
}

export interface LaneEnds {
  readonly role: Role;
  readonly transport: Transport;
  readonly onOpen: (stream: MuxStream) => void;
  /**
   * A hello was found behind the sync word. "skip" looks for the next one; "stop" discards all input from now;
   * otherwise the function that is given the running mux.
   */
  readonly onHello: (payload: Uint8Array) => "skip" | "stop" | ((mux: Mux) => void);
  /** More stale bytes than the limit were thrown away; input is discarded from now. */
  readonly onFlood: (failure: Failure) => void;
  /** The word that starts a new generation while a mux runs; for a guest's control lane alone. */
  readonly restartWord?: Uint8Array;
}

/**
 * The part of a lane that both roles share: it is either discarding, looking for a sync word, or running the
 * mux of one generation. The mux of an older generation never touches the transport again.
 */
export class LaneCore {
  readonly #ends: LaneEnds;
  #scanner: SyncScanner | undefined;
  #mux: Mux | undefined;
  #onDrain: () => void = () => undefined;
  #isLost = false;

  constructor(ends: LaneEnds) {
    this.#ends = ends;
    ends.transport.onDrain(() => this.#onDrain());
  }

  get mux(): Mux | undefined {
    return this.#mux;
  }

  get isLost(): boolean {
    return this.#isLost;
  }

  write(bytes: Uint8Array): void {
    this.#ends.transport.write(bytes);
  }

  receive(chunk: Uint8Array): void {
    if (this.#isLost) return;
    if (this.#mux !== undefined) this.#mux.receive(chunk);
    else if (this.#scanner !== undefined) this.#scan(this.#scanner, plainBytes(chunk));
  }

  /** Drops the current generation and looks for `word`. */
  seek(word: Uint8Array, reason: string): void {
    this.#endMux(reason);
    this.#scanner = new SyncScanner(word);
  }

  /** Drops the current generation and discards all input. */
  stop(reason: string): void {
    this.#endMux(reason);
    this.#scanner = undefined;
  }

  lost(message: string): void {
    if (this.#isLost) return;
    this.#isLost = true;
    this.stop(message);
    this.#ends.transport.close();
  }

  #scan(scanner: SyncScanner, chunk: Uint8Array): void {
    let input: Uint8Array | undefined = chunk;
    while (input !== undefined && this.#scanner === scanner) {
      const found = scanner.push(input);
      if (scanner.staleBytes > WIRE_LIMITS.staleBytesMax) this.#flood(scanner.staleBytes);
      else if (found !== undefined) this.#judge(scanner, found);
      input = found?.rest;
    }
  }

  #judge(scanner: SyncScanner, found: FoundHello): void {
    const outcome = this.#ends.onHello(found.payload);
    if (this.#scanner !== scanner || outcome === "skip") return;
    this.#scanner = undefined;
    if (outcome !== "stop") this.#start(outcome, found.rest);
  }

  #start(onMux: (mux: Mux) => void, rest: Uint8Array): void {
    const mux: Mux = createMux({
      role: this.#ends.role,
      onOpen: this.#ends.onOpen,
      transport: {
        write: (bytes) => (this.#mux === mux ? this.#ends.transport.write(bytes) : true),
        onDrain: (listener) => {
          this.#onDrain = listener;
        },
        // The lane outlives its mux.
        close: () => this.#forget(mux),
      },
      onForeignWord: (word, after) => this.#restart(word, after),
    });
    this.#mux = mux;
    onMux(mux);
    if (this.#mux === mux) mux.receive(rest);
  }

  /** A mux that ended by itself; a guest's control lane then waits for the host's next start. */
  #forget(mux: Mux): void {
    if (this.#mux !== mux) return;
    this.#mux = undefined;
    const word = this.#ends.restartWord;
    if (word !== undefined && !this.#isLost) this.#scanner = new SyncScanner(word);
  }

  #restart(word: number, after: Uint8Array): boolean {
    const restartWord = this.#ends.restartWord;
    if (restartWord === undefined || word !== getU32(restartWord, 0)) return false;
    this.seek(restartWord, "a new lane generation");
    this.receive(restartWord.subarray(0, 4));
    this.receive(after);
    return true;
  }

  #endMux(reason: string): void {
    const mux = this.#mux;
    this.#mux = undefined;
    mux?.lost(reason);
  }

  #flood(staleBytes: number): void {
    this.#scanner = undefined;
    const message = `Cannot start lane: no hello within ${staleBytes} bytes of older input`;
    this.#ends.onFlood(new Failure("lane_lost", message));
  }
}

/** The methods that every lane has; `onLost` settles what waits for it. */
export function laneMethods(core: LaneCore, onLost: (message: string) => void): Omit<Lane, "mux"> {
  const lost = (message: string) => {
    core.lost(message);
    onLost(message);
  };
  return {
    receive: (chunk) => core.receive(chunk),
    lost,
    close: () => {
      core.mux?.close();
      lost("closed here");
    },
  };
}
