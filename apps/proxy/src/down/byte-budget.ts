/** Bytes that several holders share: what one holds the others cannot. */
export class ByteBudget {
  readonly #max: number;
  #used = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get usedBytes(): number {
    return this.#used;
  }

  /** Changes what a holder has from `held` to `wanted`. False, and nothing changes: there is no room for it. */
  change(held: number, wanted: number): boolean {
    const used = this.#used - held + wanted;
    if (wanted > held && used > this.#max) return false;
    this.#used = used;
    return true;
  }
}
