import type { Redactor } from "../boundary/parts.ts";
import { formsOf } from "./forms.ts";
import { CREDENTIAL_LIMITS } from "./limits.ts";
import { markerOf, spans } from "./marker.ts";
import { type Hit, Matcher } from "./matcher.ts";
import { type Unwrapped, unwrapped } from "./unwrapped.ts";

/** What stands for a value that could not be looked through. */
const WITHHELD = "[redacted]";

interface Redacted<T> {
  readonly value: T;
  readonly isRedacted: boolean;
}

/**
 * Replaces registered secrets by `[credential:blake3:…]`, in every form that `formsOf` knows. It holds against accidents:
 * a program that means to print a secret can write it in a way that nobody looks for. Without secrets it costs nothing.
 */
export class SecretRedactor implements Redactor {
  readonly #forms = new Map<string, ReadonlySet<string>>();
  /** Null: there are none, or they have changed since it was made. */
  #matcher: Matcher | null = null;

  get isEmpty(): boolean {
    return this.#forms.size === 0;
  }

  /** Holds for every text from now on. */
  add(ref: string, secret: string): void {
    this.#forms.set(ref, formsOf(secret));
    this.#matcher = null;
  }

  remove(ref: string): void {
    this.#forms.delete(ref);
    this.#matcher = null;
  }

  /**
   * What it returns stays the same when it is redacted again. With `isCut` the text went on where it came from: an end
   * that may be the beginning of a secret is dropped.
   */
  text(
    text: string,
    { isCut = false }: { readonly isCut?: boolean } = {},
  ): { text: string; isRedacted: boolean } {
    if (this.isEmpty) return { text, isRedacted: false };
    const view = unwrapped(text, isCut);
    const end = isCut ? tailStart(this.#compiled(), text, view) : text.length;
    return this.#settled(text, this.#replaced(text, this.#hits(text, view), end));
  }

  /**
   * One of lines that follow one another, where `before` is the end of those before it, without line ends. What reaches
   * into it from there is replaced. An end that may be the beginning of a secret is dropped, if it is as long as a form
   * must be: what comes next is not known yet.
   */
  following(before: string, line: string): string {
    if (this.isEmpty) return line;
    const matcher = this.#compiled();
    const from = before.length;
    const text = before + line;
    const reaching = matcher
      .find(text)
      .flatMap(({ start, end, ref }) =>
        start < from && end > from ? [{ start: 0, end: end - from, ref }] : [],
      );
    const end = Math.max(0, matcher.tailStart(text, CREDENTIAL_LIMITS.formCharactersMin) - from);
    const hits = this.#hits(line, unwrapped(line)).concat(reaching);
    return this.#settled(line, this.#replaced(line, hits, end)).text;
  }

  json<T>(value: T): { value: T; isRedacted: boolean } {
    if (this.isEmpty) return { value, isRedacted: false };
    // The shape is the same; only texts in it are others.
    return this.#json(value, 0) as Redacted<T>;
  }

  /** Whose secrets it holds. */
  refsIn(text: string): string[] {
    if (this.isEmpty) return [];
    const found = spans(text, this.#hits(text, unwrapped(text)), (ref) => this.#forms.has(ref));
    return [...new Set(found.flatMap(({ refs }) => refs))];
  }

  #hits(text: string, view: Unwrapped | null): Hit[] {
    const matcher = this.#compiled();
    return matcher.find(text).concat(view === null ? [] : wrappedHits(matcher, view));
  }

  /** Replaced until nothing is found any more: the end was dropped once, and what stands before it was not cut. */
  #settled(text: string, replaced: string): { text: string; isRedacted: boolean } {
    if (replaced === text) return { text, isRedacted: false };
    let shown = replaced;
    for (let round = 1; round < CREDENTIAL_LIMITS.roundsMax; round += 1) {
      const next = this.#replaced(shown, this.#hits(shown, unwrapped(shown)), shown.length);
      if (next === shown) return { text: shown, isRedacted: shown !== text };
      shown = next;
    }
    return { text: WITHHELD, isRedacted: true };
  }

  #replaced(text: string, hits: readonly Hit[], end: number): string {
    let shown = "";
    let at = 0;
    for (const span of spans(text, hits, (ref) => this.#forms.has(ref))) {
      shown += text.slice(at, Math.min(span.start, Math.max(at, end))) + span.refs.map(markerOf).join("");
      at = span.end;
    }
    return shown + (at < end ? text.slice(at, end) : "");
  }

  #json(value: unknown, depth: number): Redacted<unknown> {
    if (typeof value === "string") {
      const { text, isRedacted } = this.text(value);
      return { value: text, isRedacted };
    }
    if (typeof value !== "object" || value === null) return { value, isRedacted: false };
    if (depth >= CREDENTIAL_LIMITS.jsonDepthMax) return { value: WITHHELD, isRedacted: true };
    if (Array.isArray(value)) {
      const items = value.map((item: unknown) => this.#json(item, depth + 1));
      return items.some(({ isRedacted }) => isRedacted)
        ? { value: items.map((item) => item.value), isRedacted: true }
        : { value, isRedacted: false };
    }
    const entries = Object.entries(value).map(([key, item]) => {
      const name = this.text(key);
      const inner = this.#json(item, depth + 1);
      return { entry: [name.text, inner.value], isRedacted: name.isRedacted || inner.isRedacted };
    });
    return entries.some(({ isRedacted }) => isRedacted)
      ? { value: Object.fromEntries(entries.map(({ entry }) => entry)), isRedacted: true }
      : { value, isRedacted: false };
  }

  #compiled(): Matcher {
    if (this.#matcher !== null) return this.#matcher;
    const forms = new Map<string, string>();
    for (const [ref, texts] of this.#forms) {
      // Of two names for one secret, the first stands for it.
      for (const form of texts) if (!forms.has(form)) forms.set(form, ref);
    }
    this.#matcher = new Matcher(forms);
    return this.#matcher;
  }
}

/** Of what is found where lines are joined, what their ends cut: the rest is found without. */
function wrappedHits(matcher: Matcher, view: Unwrapped): Hit[] {
  return matcher
    .find(view.text)
    .flatMap(({ start, end, ref }) =>
      view.isWrapped(start, end) ? [{ start: view.origin(start), end: view.origin(end - 1) + 1, ref }] : [],
    );
}

function tailStart(matcher: Matcher, text: string, view: Unwrapped | null): number {
  const start = matcher.tailStart(text);
  if (view === null) return start;
  const wrapped = matcher.tailStart(view.text);
  return wrapped === view.text.length ? start : Math.min(start, view.origin(wrapped));
}
