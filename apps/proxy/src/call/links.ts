import { PROXY_LIMITS } from "../limits.ts";

/** Original URIs that came in results, with the one server that gave them. */
export class Links {
  /** Null where several did. */
  readonly #owners = new Map<string, string | null>();

  /** A result named them: who has seen it may ask for them by the names that it saw. */
  note(server: string, uris: readonly string[]): void {
    for (const uri of uris) {
      const known = this.#owners.get(uri);
      if (known === server || known === null) continue;
      if (known === undefined) this.#makeRoom();
      this.#owners.set(uri, known === undefined ? server : null);
    }
  }

  /** Undefined: nobody. Null: more than one. */
  ownerOf(uri: string): string | null | undefined {
    return this.#owners.get(uri);
  }

  #makeRoom(): void {
    if (this.#owners.size < PROXY_LIMITS.linksMax) return;
    const [oldest] = this.#owners.keys();
    if (oldest !== undefined) this.#owners.delete(oldest);
  }
}
