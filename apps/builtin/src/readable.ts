import { Readability } from "@mozilla/readability";
import type { Page } from "./dom.ts";
import { PAGE_LIMITS } from "./limits.ts";
import type { TreeElement } from "./tree.ts";

export interface Article {
  readonly title: string | null;
  readonly element: TreeElement;
}

/** What a page is read for, without what stands around it; null where that cannot be told. Changes the page. */
export function articleOf({ document, title, elements }: Page): Article | null {
  if (elements > PAGE_LIMITS.articleElementsMax) return null;
  const reader = new Readability<TreeElement>(document as never, {
    maxElemsToParse: PAGE_LIMITS.articleElementsMax,
    // A text would have to be read again.
    serializer: (node) => node as unknown as TreeElement,
  });
  const article = reader.parse();
  if (article?.content == null || (article.length ?? 0) === 0) return null;
  return { title: article.title ?? title, element: article.content };
}
