import type { SecretMatcher, Span } from "./secret-matcher.ts";

const BLANK = "*".charCodeAt(0);
const NONE = Buffer.alloc(0);
const NO_SPANS: readonly Span[] = [];

/**
 * Blanks secrets that a server sends back, as a page of its errors does with the headers of a request. What it puts in
 * their place is as long. Of bytes that may be the beginning of one the last are held until the next come.
 */
export class SecretFilter {
  readonly #matcher: SecretMatcher;
  /** As they came. */
  #held: Buffer = NONE;
  /** What of these is to be blanked whatever comes. */
  #heldSpans: readonly Span[] = NO_SPANS;

  constructor(matcher: SecretMatcher) {
    this.#matcher = matcher;
  }

  /** What may be passed on now; it changes the chunk, which must be nobody else's. */
  push(chunk: Buffer): Buffer {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const found = this.#matcher.find(bytes);
    const spans = this.#heldSpans.length === 0 ? found : [...this.#heldSpans, ...found];
    const from = this.#matcher.tailStart(bytes);
    if (from === bytes.length) {
      this.#held = NONE;
      this.#heldSpans = NO_SPANS;
    } else {
      // Copied: a few bytes are not to hold a whole chunk.
      this.#held = Buffer.from(bytes.subarray(from));
      this.#heldSpans = spans.flatMap(({ start, end }) =>
        end > from ? [{ start: Math.max(0, start - from), end: end - from }] : [],
      );
    }
    blank(bytes, spans);
    return bytes.subarray(0, from);
  }

  /** The last bytes, which were no secret after all. */
  end(): Buffer {
    const held = this.#held;
    blank(held, this.#heldSpans);
    this.#held = NONE;
    this.#heldSpans = NO_SPANS;
    return held;
  }

  /** Of a text whole, as a header is: a character a byte. */
  text(value: string): string {
    const bytes = Buffer.from(value, "latin1");
    const spans = this.#matcher.find(bytes);
    if (spans.length === 0) return value;
    blank(bytes, spans);
    return bytes.toString("latin1");
  }
}

function blank(bytes: Buffer, spans: readonly Span[]): void {
  for (const { start, end } of spans) bytes.fill(BLANK, start, end);
}
