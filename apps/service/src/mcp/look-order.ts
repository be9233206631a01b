/**
 * Which look at a server is known to be the latest. Several proxies look, and a look takes its time: one that is reported
 * last may have been begun before another saw something new. A proxy begins its next look at a server when its last
 * report of it was answered, so that a look is surely of now where nothing has changed since that answer.
 */
export class LookOrder {
  readonly #changes = new Map<string, number>();
  /** Of each reporter: changes of each server that it was answered behind. */
  readonly #answered = new WeakMap<object, Map<string, number>>();

  /** All that look are younger than what was known before them. */
  isLatest(server: string, reporter: object): boolean {
    return (this.#answered.get(reporter)?.get(server) ?? 0) === this.#changesOf(server);
  }

  /** A report has said something new. */
  changed(server: string): void {
    this.#changes.set(server, this.#changesOf(server) + 1);
  }

  /** In the moment when the reporter gets its answer. */
  answered(server: string, reporter: object): void {
    const known = this.#answered.get(reporter);
    if (known === undefined) this.#answered.set(reporter, new Map([[server, this.#changesOf(server)]]));
    else known.set(server, this.#changesOf(server));
  }

  #changesOf(server: string): number {
    return this.#changes.get(server) ?? 0;
  }
}
