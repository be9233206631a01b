/** Everything random in tests, benchmarks and fuzzers of this package comes from one seed. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** mulberry32: 0 to `count` - 1. */
  below(count: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % count;
  }

  chance(oneIn: number): boolean {
    return this.below(oneIn) === 0;
  }

  pick<T>(items: readonly T[]): T {
    const item = items[this.below(items.length)];
    if (item === undefined) throw new RangeError("nothing to pick from");
    return item;
  }

  some<T>(items: readonly T[], oneIn: number): T[] {
    return items.filter(() => this.chance(oneIn));
  }
}
