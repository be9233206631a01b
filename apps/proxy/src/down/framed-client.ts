import { Failure, messageOf, within } from "@capsem/base";
import {
  type Envelope,
  envelopeErrorCode,
  errorText,
  idKeyOf,
  kindOf,
  memberOf,
  NOTIFICATIONS,
  type RequestEnvelope,
  RPC_CODES,
  readEnvelope,
} from "@capsem/mcp-protocol";
import { discardRest, McpFrameFault, McpFrameReader, type McpMessage, type MuxStream } from "@capsem/wire";
import type { Client, Conversation, LargeMessage, Rail } from "../conversation.ts";
import type { ByteBudget } from "./byte-budget.ts";
import { FrameWriter } from "./frame-writer.ts";
import type { DownLimits } from "./limits.ts";

export interface FramedOptions {
  readonly rail: Rail;
  /** Behind its metadata line. Ended or reset here on every path. */
  readonly stream: MuxStream;
  /** Of the metadata line: for frames that say none. */
  readonly processName: string;
  readonly taintKey: string;
  readonly begun: ByteBudget;
  readonly limits: DownLimits;
  /** A bug of ours, which took this client with it. */
  readonly report: (thrown: unknown) => void;
}

/** Serves one framed client to its end. Never rejects. */
export function serveFramed(options: FramedOptions): Promise<void> {
  return new FramedClient(options).serve();
}

/** What a request of the client is waiting for: under which id its answer goes. */
interface Waiting {
  readonly streamId: number;
  readonly chars: number;
}

class FramedClient implements Client {
  readonly transport = "framed";
  readonly taintKey: string;
  readonly protocolHint = null;
  readonly gone: AbortSignal;

  readonly #options: FramedOptions;
  readonly #gone = new AbortController();
  readonly #writer: FrameWriter;
  readonly #reader = new McpFrameReader();
  readonly #conversation: Conversation;
  /** By the key of its id: the client's requests that are not answered. */
  readonly #waiting = new Map<string, Waiting>();
  #waitingChars = 0;
  /** By stream id, the key of its id: our requests that are not answered. */
  readonly #asked = new Map<number, string>();
  /** Stream ids of those that it need not answer any more, and may. */
  readonly #withdrawn = new Set<number>();
  readonly #running = new Set<Promise<void>>();
  #heldBytes = 0;
  #lastGuestId = 0;
  #nextHostId = 2;

  constructor(options: FramedOptions) {
    this.#options = options;
    this.taintKey = options.taintKey;
    this.gone = this.#gone.signal;
    this.#writer = new FrameWriter(options.stream, options.limits);
    this.#conversation = options.rail.open(this);
  }

  async serve(): Promise<void> {
    const { stream } = this.#options;
    const leave = () => this.#leave();
    void stream.closed.then(leave);
    try {
      await this.#readAll();
      await this.#lastAnswers();
      this.#leave();
      stream.end();
    } catch (thrown) {
      this.#leave();
      if (thrown instanceof McpFrameFault) await this.#refuse(thrown);
      else if (!(thrown instanceof Failure)) {
        stream.reset("internal");
        this.#options.report(thrown);
      }
    } finally {
      this.#hold(0);
      this.#leave();
    }
    await this.#discard();
  }

  async send(message: string | LargeMessage, about: string | null): Promise<boolean> {
    if (this.gone.aborted) return false;
    if (typeof message !== "string") return about !== null && this.#answer(message.parts, about);
    switch (kindOf(message)) {
      case "notification":
        this.#withdraw(message);
        return this.#write(0, message);
      case "request":
        return this.#ask(message);
      default:
        return about !== null && this.#answer(message, about);
    }
  }

  /** Until the client's end. Throws McpFrameFault, or what the stream throws. */
  async #readAll(): Promise<void> {
    const { stream } = this.#options;
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
      // It may still say what it said before it left: nobody is there for an answer.
      if (this.gone.aborted) return;
      this.#reader.push(chunk, (message) => this.#take(message));
      this.#hold(this.#reader.heldBytes);
      if (this.#reader.hasEnded) break;
      const room = this.#writer.room();
      if (room !== undefined) await room;
    }
    this.#reader.end();
  }

  #hold(bytes: number): void {
    if (!this.#options.begun.change(this.#heldBytes, bytes)) {
      throw new McpFrameFault("messages of this VM that have begun are too long together", 0);
    }
    this.#heldBytes = bytes;
  }

  /** Throws McpFrameFault where stream id, flag and message do not go together. */
  #take(message: McpMessage): void {
    this.#checkId(message.streamId);
    let read: Envelope;
    try {
      read = readEnvelope(message.text);
    } catch (thrown) {
      this.#unreadable(message.streamId, thrown);
      return;
    }
    const { streamId } = message;
    const isAnswer = read.kind === "result" || read.kind === "error";
    const expected = streamId === 0 ? "notification" : streamId % 2 === 1 ? "request" : "answer";
    if ((isAnswer ? "answer" : read.kind) !== expected) {
      throw new McpFrameFault(
        `stream id ${streamId} is for a ${expected}, and it is a ${read.kind}`,
        streamId,
      );
    }
    if (read.kind === "request") this.#request(message, read);
    else if (read.kind === "notification") this.#pass(message, read);
    else {
      if (this.#withdrawn.delete(streamId)) return;
      const key = this.#asked.get(streamId);
      if (read.idText === null || key !== idKeyOf(read.idText)) {
        throw new McpFrameFault("it answers what was not asked under its stream id", streamId);
      }
      this.#asked.delete(streamId);
      this.#pass(message, read);
    }
  }

  #checkId(streamId: number): void {
    if (streamId === 0) return;
    if (streamId % 2 === 0) {
      if (!this.#asked.has(streamId) && !this.#withdrawn.has(streamId))
        throw new McpFrameFault(`stream id ${streamId} was not asked`, streamId);
      return;
    }
    if (streamId <= this.#lastGuestId) {
      throw new McpFrameFault(`stream id ${streamId} comes after ${this.#lastGuestId}`, streamId);
    }
    this.#lastGuestId = streamId;
  }

  /** No message of JSON-RPC. The frames are whole, so the stream goes on. */
  #unreadable(streamId: number, thrown: unknown): void {
    if (!(thrown instanceof Failure)) throw thrown;
    // Nobody waits for an answer to a notification.
    if (streamId === 0) return;
    if (streamId % 2 === 0) throw new McpFrameFault(messageOf(thrown), streamId);
    const idText = thrown.facts?.id_text;
    const id = typeof idText === "string" ? idText : null;
    void this.#write(streamId, errorText(id, envelopeErrorCode(thrown), thrown.message));
  }

  #request(message: McpMessage, read: RequestEnvelope): void {
    const { limits } = this.#options;
    const { streamId, text } = message;
    const { idText } = read;
    const key = idKeyOf(idText);
    const refuse = (code: number, reason: string) => {
      void this.#write(streamId, errorText(idText, code, `Cannot take request: ${reason}`));
    };
    if (this.#waiting.has(key)) {
      refuse(RPC_CODES.invalidRequest, "another with its id is not answered yet");
      return;
    }
    const chars = this.#waitingChars + text.length;
    if (this.#waiting.size >= limits.requestsMax || chars > limits.requestCharsMax) {
      refuse(RPC_CODES.internalError, `${this.#waiting.size} of this client are not answered yet`);
      return;
    }
    const waiting = { streamId, chars: text.length };
    this.#waiting.set(key, waiting);
    this.#waitingChars = chars;
    const done = this.#pass(message, read).then(() => {
      this.#running.delete(done);
      // Cancelled: nothing will come.
      if (this.#waiting.get(key) === waiting) this.#forget(key, waiting);
    });
    this.#running.add(done);
  }

  #forget(key: string, waiting: Waiting): void {
    this.#waiting.delete(key);
    this.#waitingChars -= waiting.chars;
  }

  #pass({ text, processName }: McpMessage, read: Envelope): Promise<void> {
    const name = processName === "" ? this.#options.processName : processName;
    return this.#conversation.receive(text, { processName: name === "" ? null : name }, read);
  }

  async #answer(message: string | readonly Uint8Array[], about: string): Promise<boolean> {
    const key = idKeyOf(about);
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) return false;
    this.#forget(key, waiting);
    try {
      return await this.#writer.write(waiting.streamId, message);
    } catch (thrown) {
      if (!(thrown instanceof Failure)) throw thrown;
      const text = errorText(about, RPC_CODES.internalError, "The answer is longer than 16 MiB");
      await this.#write(waiting.streamId, text);
      return false;
    }
  }

  async #ask(message: string): Promise<boolean> {
    const read = readEnvelope(message);
    if (read.kind !== "request" || this.#asked.size >= this.#options.limits.hostRequestsMax) return false;
    const streamId = this.#nextHostId;
    this.#nextHostId += 2;
    this.#asked.set(streamId, idKeyOf(read.idText));
    if (await this.#write(streamId, message)) return true;
    this.#asked.delete(streamId);
    return false;
  }

  /** Where the client is told that a request of ours is cancelled, nothing is waited for: most never answer it then. */
  #withdraw(message: string): void {
    if (this.#asked.size === 0 || !message.includes(NOTIFICATIONS.cancelled)) return;
    const read = readEnvelope(message);
    if (read.kind !== "notification" || read.method !== NOTIFICATIONS.cancelled) return;
    const idText = memberOf(read.paramsText ?? "{}", "requestId");
    if (idText === undefined) return;
    const key = idKeyOf(idText);
    for (const [streamId, asked] of this.#asked) {
      if (asked !== key) continue;
      this.#asked.delete(streamId);
      this.#withdrawn.add(streamId);
    }
    const [oldest] = this.#withdrawn;
    if (this.#withdrawn.size > this.#options.limits.withdrawnMax && oldest !== undefined)
      this.#withdrawn.delete(oldest);
  }

  /** False: the stream is over, or the message is longer than any may be. */
  async #write(streamId: number, text: string): Promise<boolean> {
    try {
      return await this.#writer.write(streamId, text);
    } catch (thrown) {
      if (thrown instanceof Failure) return false;
      throw thrown;
    }
  }

  /** The client has said all: what runs may still be answered. */
  async #lastAnswers(): Promise<void> {
    if (this.#running.size === 0) return;
    const answered = Promise.all([...this.#running]);
    const timeoutMs = this.#options.limits.lastAnswersTimeoutMs;
    await within(answered, timeoutMs, undefined, this.gone).catch(() => undefined);
  }

  #leave(): void {
    if (this.gone.aborted) return;
    this.#gone.abort();
    this.#conversation.close();
  }

  /** A frame that is none: said so under its id, and no more is read. */
  async #refuse(fault: McpFrameFault): Promise<void> {
    const isOdd = fault.streamId % 2 === 1;
    const streamId = isOdd ? fault.streamId : Math.max(1, this.#lastGuestId);
    await this.#write(streamId, errorText(null, RPC_CODES.invalidRequest, fault.message));
    this.#options.stream.end();
  }

  /** Our end is under way, and a reset would overtake it: what still comes is thrown away for a while. */
  async #discard(): Promise<void> {
    const { stream, limits } = this.#options;
    await within(discardRest(stream), limits.discardTimeoutMs).catch(() => stream.reset("cancelled"));
  }
}
