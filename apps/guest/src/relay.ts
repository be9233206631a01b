import type { ChildProcess } from "node:child_process";
import { Duplex, type Readable } from "node:stream";
import { assert, type Deferred, defer } from "@capsem/base";
import { type MuxStream, type Transport, WIRE_LIMITS } from "@capsem/wire";
import { guestFailure } from "./guest-error.ts";
import { GUEST_LIMITS } from "./limits.ts";
import type { Port } from "./port-device.ts";

/** guest-image/helper/PROTOCOL.md, section 4. */
const RECORDS = { frames: 1, send: 2, grant: 3, stop: 4 } as const;
const HEAD_BYTES = 5;
const REPORT_BYTES = 20;
/** A boundary that no count of bytes reaches: the relay then leaves the grants to us. */
const NO_BOUNDARY = Number.MAX_SAFE_INTEGER;
/** As the transport of a mux over a plain stream: below it no frame waits for a turn of the event loop. */
const WAITING_BYTES_MAX = WIRE_LIMITS.streamCreditBytes;

export interface FileWindow {
  /** Open here until `send` has settled. */
  readonly fd: number;
  readonly offset: number;
  readonly length: number;
}

interface Report {
  readonly creditBytes: number;
  readonly errno: number;
}

/**
 * `capsem-helper relay`, which has the bulk lane's port: what comes there is on `input`, frames are written by it, and
 * it sends the bytes of whole files by itself. There is one writer to the port, so no frame is ever torn by another.
 */
export class Relay implements Transport, Port {
  readonly input: Readable;
  /** Ends with the helper; destroying it ends the helper. */
  readonly output: Duplex;
  #gathered: Uint8Array[] = [];
  #gatheredBytes = 0;
  #receivedBytes = 0;
  #isClosed = false;
  #bodies = 0;
  readonly #sending = new Map<number, Deferred<Report>>();
  #held: Buffer = Buffer.alloc(0);

  constructor(child: ChildProcess) {
    const control = child.stdio[3];
    assert(child.stdout && control instanceof Duplex, "a relay has a stdout and a control descriptor");
    this.input = child.stdout;
    this.output = control;
    // The first listener: what is counted has reached the mux when the turn is over.
    this.input.on("data", (chunk: Buffer) => {
      this.#receivedBytes += chunk.length;
    });
    control.on("data", (chunk: Buffer) => this.#takeReports(chunk));
    control.on("error", () => control.destroy());
    control.once("end", () => control.destroy());
    control.once("close", () => this.#lost());
    child.once("error", () => control.destroy());
    child.once("exit", () => control.destroy());
    control.once("close", () => child.kill("SIGKILL"));
  }

  write(chunk: Uint8Array): boolean {
    if (this.#isClosed || this.output.destroyed) return true;
    // All frames of one turn are one record and leave in one system call.
    if (this.#gathered.length === 0) queueMicrotask(() => this.#flush());
    this.#gathered.push(chunk);
    this.#gatheredBytes += chunk.length;
    return this.output.writableLength + this.#gatheredBytes < WAITING_BYTES_MAX;
  }

  onDrain(listener: () => void): void {
    this.output.on("drain", listener);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#flush();
    this.#isClosed = true;
    const timer = setTimeout(() => this.output.destroy(), GUEST_LIMITS.laneCloseTimeoutMs);
    this.output.once("close", () => clearTimeout(timer));
    this.output.end(() => this.output.destroy());
  }

  /**
   * Moves a window of a file, or what there is of it, as data of the stream, which the caller then ends. Throws what
   * the stream throws, or a guest Failure when the file cannot be read. `isBetweenFrames`: what came so far ends with
   * a frame, so that the relay can look for this stream's grants by itself.
   */
  async send(stream: MuxStream, window: FileWindow, isBetweenFrames: boolean): Promise<void> {
    const { fd, offset, length } = window;
    // Nothing would ever say that it is over.
    if (this.#isClosed || this.output.destroyed) throw lost();
    const boundary = isBetweenFrames ? this.#receivedBytes : NO_BOUNDARY;
    this.#bodies = (this.#bodies + 1) >>> 0;
    const number = this.#bodies;
    let revoked: Error | undefined;
    const credit = stream.lend({
      granted: (bytes) => this.#order(RECORDS.grant, [number, bytes]),
      revoked: (cause) => {
        revoked = cause;
        this.#order(RECORDS.stop, [number]);
      },
    });
    const over = defer<Report>();
    this.#sending.set(number, over);
    const numbers = [...twoWords(offset), ...twoWords(length), credit, ...twoWords(boundary)];
    this.#order(RECORDS.send, [number, stream.id, fd, ...numbers]);
    const { creditBytes, errno } = await over.promise;
    if (revoked !== undefined) throw revoked;
    stream.takeBack(creditBytes);
    if (errno !== 0) throw guestFailure("file_failed", `Cannot read file: error ${errno}`);
  }

  /** Nothing that was written before it may come after it. */
  #order(kind: number, words: readonly number[]): void {
    if (this.#isClosed || this.output.destroyed) return;
    this.#flush();
    const record = Buffer.allocUnsafe(HEAD_BYTES + words.length * 4);
    head(record, kind, words.length * 4);
    for (const [index, word] of words.entries()) record.writeUInt32BE(word, HEAD_BYTES + index * 4);
    this.output.write(record);
  }

  #flush(): void {
    const chunks = this.#gathered;
    if (chunks.length === 0 || this.#isClosed || this.output.destroyed) return;
    const record = Buffer.allocUnsafe(HEAD_BYTES);
    head(record, RECORDS.frames, this.#gatheredBytes);
    this.#gathered = [];
    this.#gatheredBytes = 0;
    this.output.cork();
    this.output.write(record);
    for (const chunk of chunks) this.output.write(chunk);
    this.output.uncork();
  }

  #takeReports(chunk: Buffer): void {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    let at = 0;
    for (; bytes.length - at >= REPORT_BYTES; at += REPORT_BYTES) {
      const number = bytes.readUInt32BE(at);
      const over = this.#sending.get(number);
      this.#sending.delete(number);
      over?.resolve({ creditBytes: bytes.readUInt32BE(at + 12), errno: bytes.readUInt32BE(at + 16) });
    }
    this.#held = bytes.subarray(at);
  }

  #lost(): void {
    for (const over of this.#sending.values()) over.reject(lost());
    this.#sending.clear();
  }
}

function lost(): Error {
  return guestFailure("internal", "Cannot read file: the relay that sends it ended");
}

function head(record: Buffer, kind: number, length: number): void {
  record.writeUInt8(kind, 0);
  record.writeUInt32BE(length, 1);
}

function twoWords(value: number): [number, number] {
  return [Math.floor(value / 0x1_0000_0000), value >>> 0];
}
