import { type SearchOptions, type SearchResult, searchLines } from "./line-search.ts";
import { type PageSource, pageText, type TextFormat } from "./page-text.ts";
import { Matcher } from "./pattern/matcher.ts";
import { pageOf, type TextPage } from "./text-page.ts";
import { unzstd } from "./zstd.ts";

/** What a thread is given to do: everything whose time a stranger's bytes decide. */
export interface PageJobs {
  convert: {
    job: { source: PageSource; offset: number; charsMax: number };
    result: TextPage & { readonly title: string | null; readonly format: TextFormat };
  };
  search: {
    job: { source: PageSource; pattern: string; ignoreCase: boolean; options: SearchOptions };
    result: SearchResult;
  };
  unzstd: { job: { body: Uint8Array }; result: Uint8Array };
}
export type PageVerb = keyof PageJobs;

export const PAGE_WORK: { readonly [V in PageVerb]: (job: PageJobs[V]["job"]) => PageJobs[V]["result"] } = {
  convert({ source, offset, charsMax }) {
    const { text, title, format } = pageText(source);
    return { ...pageOf(text, offset, charsMax), title, format };
  },
  search({ source, pattern, ignoreCase, options }) {
    // A pattern that is none is said before a page is converted for it.
    const matcher = new Matcher(pattern, ignoreCase);
    return searchLines(pageText(source).text, matcher, options);
  },
  unzstd: ({ body }) => unzstd(body),
};
