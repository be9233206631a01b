import { CLEAN, isCovered, join, type Label, label } from "@capsem/policy";
import { PROXY_LIMITS } from "../limits.ts";

/** What has flowed into each session. It never goes down by itself. */
export class Taints {
  readonly #labels = new Map<string, Label>();
  /** Of sessions that are no longer kept apart: everybody's. */
  #rest: Label = CLEAN;
  /** Of servers that are declared: few. */
  readonly #sources = new Map<string, Label>();

  of(key: string): Label {
    const own = this.#labels.get(key);
    if (own === undefined) return this.#rest;
    return this.#rest === CLEAN ? own : join(own, this.#rest);
  }

  add(key: string, more: Label): void {
    const own = this.#labels.get(key) ?? CLEAN;
    if (isCovered(more, own)) return;
    if (this.#labels.size >= PROXY_LIMITS.taintsMax && !this.#labels.has(key)) this.#shareOldest();
    this.#labels.set(key, join(own, more));
  }

  /** Of what a server answers. */
  ofSource(server: string): Label {
    let own = this.#sources.get(server);
    if (own === undefined) {
      own = label("public", "untrusted", [`mcp:${server}`]);
      this.#sources.set(server, own);
    }
    return own;
  }

  /** The session is over: nothing comes of it any more. */
  end(key: string): void {
    this.#labels.delete(key);
  }

  /** Forgotten, it would be a way to get rid of a taint. */
  #shareOldest(): void {
    const [oldest] = this.#labels;
    if (oldest === undefined) return;
    this.#labels.delete(oldest[0]);
    this.#rest = join(this.#rest, oldest[1]);
  }
}

/** Canonical JSON of a label. */
export function labelText({ confidentiality, integrity, sources }: Label): string {
  return JSON.stringify({ confidentiality, integrity, sources });
}
