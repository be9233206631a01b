import { assert, Bug, defer, Failure, messageOf, utf8 } from "@capsem/base";
import { FRAME_TYPES, getU32, resetCodeNamed } from "./frame.ts";
import { FrameReader } from "./frame-reader.ts";
import { checkFrameHeader } from "./frame-rules.ts";
import { WIRE_LIMITS } from "./limits.ts";
import { MuxSender } from "./mux-sender.ts";
import { Stream, type StreamOwner } from "./mux-stream.ts";
import { plainBytes } from "./plain-bytes.ts";
import type { Mux, MuxEnd, MuxOptions, MuxStream, ResetCode } from "./types.ts";

/** What a lane adds: it must see the word that starts its magic where a length is expected. */
export interface LaneMuxOptions extends MuxOptions {
  /** True when the word is the lane's to handle; the lane has then ended the mux. */
  readonly onForeignWord?: (word: number, rest: Uint8Array) => boolean;
}

const STREAM_ID_MAX = 0xffff_ffff;
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
/** What the peer did against the protocol, or undefined. */
type Fault = string | undefined;

/**
 * A stream multiplexer over one byte transport (docs/protocol.md, "Frames"). Every fault of the peer either
 * resets one stream or ends the mux as a violation: `receive` never throws.
 */
export function createMux(options: LaneMuxOptions): Mux {
  return new StreamMux(options);
}

class StreamMux implements Mux, StreamOwner {
  readonly ended: Promise<MuxEnd>;
  readonly #options: LaneMuxOptions;
  readonly #ended = defer<MuxEnd>();
  readonly #sender: MuxSender;
  readonly #reader: FrameReader;
  readonly #streams = new Map<number, Stream>();
  #isOver = false;
  #nextId: number;
  #peerIdSeen = 0;

  constructor(options: LaneMuxOptions) {
    this.#options = options;
    this.ended = this.#ended.promise;
    this.#nextId = options.role === "guest" ? 1 : 2;
    this.#sender = new MuxSender(options.transport);
    this.#reader = new FrameReader({
      header: (type, id, payloadBytes) => this.#goOn(checkFrameHeader(type, id, payloadBytes)),
      frame: (type, id, payload) =>
        this.#goOn(checkFrameHeader(type, id, payload.length) ?? this.#handle(type, id, payload)),
      badLength: (word, rest) => {
        if (options.onForeignWord?.(word, rest) !== true) this.#goOn(`a frame has length ${word}`);
      },
    });
  }

  get streamCount(): number {
    return this.#streams.size;
  }

  get isBetweenFrames(): boolean {
    return this.#reader.isBetweenFrames;
  }

  receive(chunk: Uint8Array): void {
    if (this.#isOver) return;
    this.#reader.push(plainBytes(chunk));
  }

  open(port: number, tag: string): MuxStream {
    const tagBytes = utf8(tag).length;
    assert(Number.isInteger(port) && port > 0 && port <= 0xffff, `port ${port} is not a u16`);
    assert(tagBytes <= WIRE_LIMITS.tagBytesMax, `the tag of a stream has ${tagBytes} bytes`);
    if (this.#isOver) throw new Failure("lane_lost", "Cannot open stream: the lane is over");
    if (this.#streams.size >= WIRE_LIMITS.streamsMax) {
      const message = `Cannot open stream: ${this.#streams.size} streams are open`;
      throw new Failure("too_many_streams", message, { retryable: true });
    }
    if (this.#nextId > STREAM_ID_MAX) throw new Failure("lane_lost", "Cannot open stream: ids are used up");
    const stream = new Stream(this, this.#nextId, port, tag, false);
    this.#nextId += 2;
    this.#streams.set(stream.id, stream);
    this.#sender.open(stream);
    return stream;
  }

  close(): void {
    this.#sender.resetLane("cancelled", "");
    this.#finish({ kind: "closed", message: "closed here" });
  }

  lost(message: string): void {
    this.#finish({ kind: "lost", message });
  }

  wantsToSend(stream: Stream): void {
    this.#sender.wantsToSend(stream);
  }

  owesWindow(stream: Stream): void {
    this.#sender.owesWindow(stream);
  }

  sendReset(stream: Stream, code: ResetCode): void {
    if (stream.announced) this.#goOn(this.#queueReset(stream.id, code));
  }

  finished(stream: Stream): void {
    this.#streams.delete(stream.id);
    this.#sender.forget(stream);
  }

  /** Whether the reader goes on; a fault ends the mux. */
  #goOn(fault: Fault): boolean {
    if (fault !== undefined && !this.#isOver) {
      this.#sender.resetLane("protocol_error", fault);
      this.#finish({ kind: "violation", message: `the peer broke the protocol: ${fault}` });
    }
    return !this.#isOver;
  }

  #queueReset(id: number, code: ResetCode): Fault {
    if (this.#isOver || this.#sender.reset(id, code)) return undefined;
    return "it causes resets and reads none";
  }

  #handle(type: number, id: number, payload: Uint8Array): Fault {
    if (id === 0) return this.#handleLaneReset(payload);
    if (type === FRAME_TYPES.open) return this.#handleOpen(id, payload);
    const stream = this.#streams.get(id);
    if (stream === undefined) {
      // Frames that crossed our reset, or our end of the stream, are late and harmless.
      return this.#wasUsed(id) ? undefined : `a frame of type ${type} names stream ${id}, never opened`;
    }
    if (!stream.announced) return `a frame of type ${type} names stream ${id}, not yet opened`;
    return handleOnStream(stream, type, payload);
  }

  #handleOpen(id: number, payload: Uint8Array): Fault {
    if (!this.#isPeers(id)) return `it opened stream ${id}, an id of this side`;
    if (id <= this.#peerIdSeen) return `it opened stream ${id} after ${this.#peerIdSeen}`;
    const port = ((payload[0] ?? 0) << 8) | (payload[1] ?? 0);
    const tag = parseTag(payload.subarray(2));
    if (tag === undefined) return `the tag of stream ${id} is not UTF-8`;
    this.#peerIdSeen = id;
    if (this.#streams.size >= WIRE_LIMITS.streamsMax) return this.#queueReset(id, "too_many_streams");
    const stream = new Stream(this, id, port, tag, true);
    this.#streams.set(id, stream);
    try {
      this.#options.onOpen(stream);
    } catch (thrown) {
      stream.reset(refusalOf(thrown));
    }
    return undefined;
  }

  #handleLaneReset(payload: Uint8Array): Fault {
    const code = resetCodeNamed(payload[0] ?? 0);
    if (code === undefined) return `a reset has the code ${payload[0]}`;
    if (code === "cancelled") {
      this.#finish({ kind: "closed", message: "closed by the peer" });
    } else {
      const text = printable(payload.subarray(1));
      this.#finish({ kind: "lost", message: `reset by the peer (${code})${text === "" ? "" : `: ${text}`}` });
    }
    return undefined;
  }

  #isPeers(id: number): boolean {
    return (id & 1) === (this.#options.role === "guest" ? 0 : 1);
  }

  #wasUsed(id: number): boolean {
    return this.#isPeers(id) ? id <= this.#peerIdSeen : id < this.#nextId;
  }

  #finish(end: MuxEnd): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#reader.stop();
    this.#sender.stop();
    const failure = new Failure("lane_lost", `Cannot use stream: the lane is over (${end.message})`);
    for (const stream of [...this.#streams.values()]) stream.fail(failure);
    this.#ended.resolve(end);
  }
}

function handleOnStream(stream: Stream, type: number, payload: Uint8Array): Fault {
  switch (type) {
    case FRAME_TYPES.data: {
      const delivery = stream.deliver(payload);
      if (delivery === "over_credit") return `stream ${stream.id} sent more than its credit`;
      if (delivery === "after_end") stream.reset("protocol_error");
      return undefined;
    }
    case FRAME_TYPES.window: {
      const bytes = getU32(payload, 0);
      return bytes > 0 && stream.granted(bytes) ? undefined : `stream ${stream.id} granted ${bytes} bytes`;
    }
    case FRAME_TYPES.end:
      if (stream.deliverEnd() === "after_end") stream.reset("protocol_error");
      return undefined;
    default: {
      const code = resetCodeNamed(payload[0] ?? 0);
      if (code === undefined) return `a reset has the code ${payload[0]}`;
      const message = `Cannot use stream ${stream.id}: reset by the peer (${code})`;
      stream.fail(new Failure("reset", message, { detail: code }));
      return undefined;
    }
  }
}

function refusalOf(thrown: unknown): ResetCode {
  if (thrown instanceof Bug) return "internal";
  if (thrown instanceof Failure && thrown.kind === "no_such_port") return "no_such_port";
  return "refused";
}

function parseTag(bytes: Uint8Array): string | undefined {
  try {
    return strictUtf8.decode(bytes);
  } catch (thrown) {
    if (thrown instanceof TypeError) return undefined;
    throw new Bug(`cannot decode a tag: ${messageOf(thrown)}`);
  }
}

/** The peer's words reach our logs: ASCII only. */
function printable(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "?";
  return text;
}
