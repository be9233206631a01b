import type { GuestMessage } from "@capsem/wire";

interface Entry {
  answers: GuestMessage[];
  bytes: number;
  settled: boolean;
}

/**
 * Which request ids were seen, and what was answered: a host that lost a lane asks again with the same id
 * and gets the same answer, never a second execution. It outlives the lanes and dies with the process; the
 * host learns of that by the agent instance.
 *
 * Forgets the oldest settled ids first. What is under way is never forgotten; jobs and operations are few.
 */
export class Journal {
  readonly #entries = new Map<string, Entry>();
  readonly #entriesMax: number;
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(entriesMax: number, bytesMax: number) {
    this.#entriesMax = entriesMax;
    this.#bytesMax = bytesMax;
  }

  get size(): number {
    return this.#entries.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The answers so far (none while it is under way), or undefined for a new id, which is then taken. */
  take(id: string): readonly GuestMessage[] | undefined {
    const known = this.#entries.get(id);
    if (known !== undefined) return known.answers;
    this.#entries.set(id, { answers: [], bytes: id.length, settled: false });
    this.#bytes += id.length;
    this.#forget();
    return undefined;
  }

  /** Keeps an answer. `last` says that nothing more comes for this id. */
  record(id: string, answer: GuestMessage, bytes: number, last: boolean): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    entry.answers.push(answer);
    entry.bytes += bytes;
    entry.settled = last;
    this.#bytes += bytes;
    this.#forget();
  }

  #forget(): void {
    if (this.#entries.size <= this.#entriesMax && this.#bytes <= this.#bytesMax) return;
    for (const [id, entry] of this.#entries) {
      if (!entry.settled) continue;
      this.#entries.delete(id);
      this.#bytes -= entry.bytes;
      if (this.#entries.size <= this.#entriesMax && this.#bytes <= this.#bytesMax) return;
    }
  }
}
