import { PAGE_ROWS_MAX } from "./limits.ts";

/**
 * What comes in pages. Iterate it for the entries, as many as `limit` of the query says or all; `pages()` gives them as
 * the service does, `page()` the first of them alone. Nothing is sent before, and each iteration asks again.
 */
export interface Listing<Entry, Page> extends AsyncIterable<Entry> {
  /** Of up to `limit` entries, or as many as the service gives without one. */
  page(): Promise<Page>;
  pages(): AsyncGenerator<Page>;
}

export interface PageSource<Entry, Page, Place> {
  readonly limit: number | undefined;
  readonly first: Place | undefined;
  ask(place: Place | undefined, limit: number | undefined): Promise<Page>;
  entriesOf(page: Page): readonly Entry[];
  /** Null: that was all. */
  nextOf(page: Page, place: Place | undefined): Place | null;
}

export function listing<Entry, Page, Place>(source: PageSource<Entry, Page, Place>): Listing<Entry, Page> {
  async function* pages(): AsyncGenerator<Page> {
    let left = source.limit;
    let place = source.first;
    for (;;) {
      const page = await source.ask(place, left === undefined ? undefined : Math.min(left, PAGE_ROWS_MAX));
      yield page;
      const count = source.entriesOf(page).length;
      if (left !== undefined) left -= count;
      const next = source.nextOf(page, place);
      if (next === null || (left !== undefined && left <= 0)) return;
      place = next;
    }
  }
  return {
    page: () => source.ask(source.first, source.limit),
    pages,
    [Symbol.asyncIterator]: async function* () {
      for await (const page of pages()) yield* source.entriesOf(page);
    },
  };
}
