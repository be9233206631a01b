import type { HttpBody } from "@capsem/net";
import { UPSTREAM_LIMITS } from "./limits.ts";
import { type Message, messageOf, textOf, withoutMark } from "./message.ts";
import type { ByteBudget } from "./upstream/byte-budget.ts";
import { read } from "./upstream/endpoint.ts";
import { rude } from "./upstream/failure.ts";

export interface ServerEvent {
  /** `message` where the server names none. */
  readonly type: string;
  readonly data: Message;
}

const LF = 10;
const CR = 13;
const COLON = 58;
const SPACE = 32;
const NOTHING: readonly ServerEvent[] = [];

/**
 * Server-sent events (WHATWG HTML, 9.2.6) out of chunks of bytes. Each byte is looked at once and each line decoded
 * once, whatever the line ends are and however the chunks fall.
 */
export class EventStreamParser {
  /** Of the last event that had one: where to go on after a cut. */
  lastEventId: string | undefined;
  /** When the server wants to be asked again. */
  retryMs: number | undefined;
  /** Parts of the line that has not ended; of a comment nothing is kept. */
  #line: Uint8Array[] = [];
  #lineBytes = 0;
  #isComment = false;
  #wasCr = false;
  #isFirst = true;
  #type = "";
  #id: string | undefined;
  #data: Message[] = [];
  #dataBytes = 0;
  #silentBytes = 0;

  /** What it holds for events that are not whole. */
  get heldBytes(): number {
    return (this.#isComment ? 0 : this.#lineBytes) + this.#dataBytes;
  }

  /** For the stream that goes on after this one was cut: what was not whole comes again. */
  restart(): void {
    this.#line = [];
    this.#lineBytes = 0;
    this.#isComment = false;
    this.#wasCr = false;
    this.#isFirst = true;
    this.#type = "";
    this.#id = undefined;
    this.#data = [];
    this.#dataBytes = 0;
  }

  /** The events that end in this chunk. Throws "upstream_failed" where the server says too much. */
  push(chunk: Uint8Array): readonly ServerEvent[] {
    let events: ServerEvent[] | undefined;
    let at = 0;
    // Both are searched for once: until one is passed, it is still the next.
    let lf = chunk.indexOf(LF);
    let cr = chunk.indexOf(CR);
    if (this.#wasCr && chunk.length > 0) {
      this.#wasCr = false;
      if (lf === 0) {
        at = 1;
        lf = chunk.indexOf(LF, at);
      }
    }
    while (lf >= 0 || cr >= 0) {
      const end = cr < 0 || (lf >= 0 && lf < cr) ? lf : cr;
      const event = this.#endLine(chunk.subarray(at, end));
      if (event !== undefined) {
        events ??= [];
        events.push(event);
      }
      at = end + 1;
      if (end === cr) {
        if (at === chunk.length) this.#wasCr = true;
        else if (lf === at) at += 1;
        cr = chunk.indexOf(CR, at);
      }
      if (lf >= 0 && lf < at) lf = chunk.indexOf(LF, at);
    }
    if (at < chunk.length) this.#keep(chunk.subarray(at));
    return events ?? NOTHING;
  }

  #keep(part: Uint8Array): void {
    if (this.#lineBytes === 0) this.#isComment = part[0] === COLON;
    this.#lineBytes += part.length;
    if (this.#isComment) {
      this.#silence(part.length);
      return;
    }
    if (this.#lineBytes + this.#dataBytes > UPSTREAM_LIMITS.messageBytesMax) throw tooLarge();
    this.#line.push(part);
  }

  #endLine(last: Uint8Array): ServerEvent | undefined {
    if (this.#lineBytes === 0) return this.#take(last);
    const isComment = this.#isComment;
    const line = isComment ? last : Buffer.concat([...this.#line, last], this.#lineBytes + last.length);
    this.#line = [];
    this.#lineBytes = 0;
    this.#isComment = false;
    if (!isComment) return this.#take(line);
    this.#silence(last.length + 1);
    return undefined;
  }

  #take(whole: Uint8Array): ServerEvent | undefined {
    const line = this.#isFirst ? withoutMark(whole) : whole;
    this.#isFirst = false;
    if (line.length === 0) return this.#dispatch();
    const colon = line.indexOf(COLON);
    if (colon === 0) {
      this.#silence(line.length + 1);
      return undefined;
    }
    const nameEnd = colon < 0 ? line.length : colon;
    if (isData(line, nameEnd)) {
      this.#addData(line, colon);
      return undefined;
    }
    this.#silence(line.length + 1);
    if (line.length > UPSTREAM_LIMITS.fieldBytesMax) throw rude("sends a field that is too long");
    this.#setField(textOf(line.subarray(0, nameEnd)), colon < 0 ? "" : textOf(valueIn(line, colon)));
    return undefined;
  }

  #addData(line: Uint8Array, colon: number): void {
    const value = colon < 0 ? "" : messageOf(valueIn(line, colon));
    this.#dataBytes += line.length + 1;
    this.#data.push(value);
    const isOver = this.#dataBytes > UPSTREAM_LIMITS.messageBytesMax;
    if (isOver || this.#data.length > UPSTREAM_LIMITS.dataLinesMax) throw tooLarge();
  }

  #setField(name: string, value: string): void {
    if (name === "event") this.#type = value;
    else if (name === "id") {
      if (!value.includes("\0") && value.length <= UPSTREAM_LIMITS.idCharactersMax) this.#id = value;
    } else if (name === "retry" && /^[0-9]{1,9}$/.test(value)) this.retryMs = Number(value);
  }

  #dispatch(): ServerEvent | undefined {
    if (this.#id !== undefined) this.lastEventId = this.#id === "" ? undefined : this.#id;
    this.#id = undefined;
    const type = this.#type === "" ? "message" : this.#type;
    this.#type = "";
    if (this.#data.length === 0) {
      this.#silence(1);
      return undefined;
    }
    const [only = ""] = this.#data;
    const data = this.#data.length === 1 ? only : this.#data.map(textOf).join("\n");
    const bytes = this.#dataBytes;
    this.#data = [];
    this.#dataBytes = 0;
    if (data === "") {
      // It only says where to go on.
      this.#silence(bytes);
      return undefined;
    }
    this.#silentBytes = 0;
    return { type, data };
  }

  #silence(bytes: number): void {
    this.#silentBytes += bytes;
    if (this.#silentBytes > UPSTREAM_LIMITS.silentBytesMax)
      throw rude("sends an event stream without events");
  }
}

export interface EventReading {
  readonly body: HttpBody;
  readonly parser: EventStreamParser;
  /** What unfinished events hold is taken from it. */
  readonly budget: ByteBudget;
  /** Told of all that comes; may throw. */
  readonly count: (bytes: number) => void;
}

/** A body's events. The body stays the caller's to cancel. */
export async function* readEvents({
  body,
  parser,
  budget,
  count,
}: EventReading): AsyncGenerator<ServerEvent, void> {
  const held = budget.open();
  try {
    for (let chunk = await read(body); chunk !== null; chunk = await read(body)) {
      count(chunk.length);
      const before = parser.heldBytes + chunk.length;
      const events = parser.push(chunk);
      held.set(parser.heldBytes + (events.length === 0 ? 0 : before));
      yield* events;
      if (events.length > 0) held.set(parser.heldBytes);
    }
  } finally {
    held.close();
  }
}

function tooLarge(): Error {
  return rude(`sends a message of more than ${UPSTREAM_LIMITS.messageBytesMax} bytes`);
}

function isData(line: Uint8Array, nameEnd: number): boolean {
  return nameEnd === 4 && line[0] === 100 && line[1] === 97 && line[2] === 116 && line[3] === 97;
}

function valueIn(line: Uint8Array, colon: number): Uint8Array {
  return line.subarray(line[colon + 1] === SPACE ? colon + 2 : colon + 1);
}
