const ID_BYTES = 6;
/** Drawn at once: asking for six bytes costs as much as for all of these. */
const IDS_DRAWN = 128;

/** Ids of events: 12 hex digits that nobody can foresee. */
export class EventIds {
  readonly #random: (bytes: number) => Uint8Array;
  #drawn: Buffer = Buffer.alloc(0);
  #at = 0;

  constructor(random: (bytes: number) => Uint8Array) {
    this.#random = random;
  }

  next(): string {
    if (this.#at >= this.#drawn.length) {
      this.#drawn = Buffer.from(this.#random(ID_BYTES * IDS_DRAWN));
      this.#at = 0;
    }
    this.#at += ID_BYTES;
    return this.#drawn.toString("hex", this.#at - ID_BYTES, this.#at);
  }
}
