import { type Envelope, kindOf, memberOf, RPC_CODES, readEnvelope } from "@capsem/mcp-protocol";
import { type AnswerStream, EventStream } from "./event-stream.ts";
import type { Accepts } from "./http-checks.ts";
import type { HttpVisit } from "./http-visit.ts";
import type { DownLimits } from "./limits.ts";

export interface ExchangeOptions {
  readonly visit: HttpVisit;
  readonly accepts: Accepts;
  /** Whether the client can answer requests of ours: it has a session. */
  readonly canAnswer: boolean;
  readonly isModern: boolean;
  readonly limits: DownLimits;
  /** Asked when the first byte of an answer leaves. */
  readonly headers: (first: Envelope["kind"] | "nothing") => Readonly<Record<string, string>>;
  /** Starts an event stream that outlives its connection; undefined: there is none such. */
  readonly openResumable: (() => AnswerStream) | undefined;
}

/** Statuses of errors that are of HTTP as much as of JSON-RPC (2026-07-28). */
const STATUSES: ReadonlyMap<number, number> = new Map([
  [RPC_CODES.methodNotFound, 404],
  [RPC_CODES.headerMismatch, 400],
  [RPC_CODES.missingCapability, 400],
  [RPC_CODES.unsupportedVersion, 400],
]);
/** No error of ours is longer: what is, is a result or somebody else's. */
const ERROR_CHARS_MAX = 65_536;

/**
 * The answer to one request: plain JSON where the answer is all that comes, and the client takes it; an event stream as soon
 * as anything comes before it, or nothing does for long; at once for a client that names it first and can come back.
 */
export class HttpExchange {
  readonly #options: ExchangeOptions;
  readonly #patience: NodeJS.Timeout | undefined;
  #stream: AnswerStream | undefined;
  #isOver = false;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    const { visit, accepts, limits } = options;
    if (accepts.stream) {
      this.#patience = setTimeout(() => this.#start("nothing").comment(), limits.keepAliveMs);
    }
    if (accepts.prefersStream && options.openResumable !== undefined) this.#start("nothing");
    visit.onOver(() => {
      if (!this.mayComeBack) this.close();
    });
  }

  /** The loss of its connection is not its end. */
  get mayComeBack(): boolean {
    return this.#stream !== undefined && this.#options.openResumable !== undefined;
  }

  /** False: it does not go this way. */
  send(message: string): Promise<boolean> {
    if (this.#isOver) return NO;
    const kind = kindOf(message);
    if (kind === "result" || kind === "error") return this.#answer(kind, message);
    const { accepts, canAnswer } = this.#options;
    if (!accepts.stream || (kind === "request" && !canAnswer)) return NO;
    return this.#start(kind).send(message);
  }

  /** Nothing more will come. Without an answer, as when the client cancelled its request, an empty one is given. */
  finish(): void {
    if (this.#isOver) return;
    this.close();
    const { visit, headers } = this.#options;
    if (this.#stream !== undefined) this.#stream.end();
    else visit.response.writeHead(202, { "Content-Length": "0", ...headers("nothing") }).end();
  }

  async #answer(kind: "result" | "error", message: string): Promise<boolean> {
    const { visit, accepts, isModern, headers } = this.#options;
    this.close();
    if (this.#stream !== undefined || !accepts.json) {
      const stream = this.#start(kind);
      const isTaken = await stream.send(message);
      stream.end();
      return isTaken;
    }
    const body = Buffer.from(message);
    const status = kind === "error" && isModern ? statusOf(message) : 200;
    visit.response.writeHead(status, {
      "Content-Type": "application/json",
      "Content-Length": String(body.length),
      ...headers(kind),
    });
    return await new Promise((resolve) => {
      visit.onOver(() => resolve(visit.isAnswered));
      visit.response.end(body);
    });
  }

  /** Nothing more goes this way. */
  close(): void {
    this.#isOver = true;
    clearTimeout(this.#patience);
  }

  #start(first: Envelope["kind"] | "nothing"): AnswerStream {
    clearTimeout(this.#patience);
    const { visit, headers, limits, openResumable } = this.#options;
    this.#stream ??= openResumable?.() ?? new EventStream(visit, headers(first), limits);
    return this.#stream;
  }
}

const NO = Promise.resolve(false);

function statusOf(message: string): number {
  if (message.length > ERROR_CHARS_MAX) return 200;
  const read = readEnvelope(message);
  const code = read.kind === "error" ? Number(memberOf(read.errorText, "code")) : 0;
  return STATUSES.get(code) ?? 200;
}
