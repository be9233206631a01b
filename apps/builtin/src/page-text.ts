import { Failure } from "@capsem/base";
import { decodeText } from "./charset.ts";
import { parsePage } from "./dom.ts";
import { PAGE_LIMITS } from "./limits.ts";
import { markdownOf } from "./markdown.ts";
import { articleOf } from "./readable.ts";

export const TEXT_FORMATS = ["markdown", "content", "raw"] as const;
export type TextFormat = (typeof TEXT_FORMATS)[number];

export interface PageSource {
  readonly body: Uint8Array;
  readonly charset: string | null;
  readonly isHtml: boolean;
  /** Its address, which its links start from. */
  readonly url: string;
  readonly format: TextFormat;
}

export interface PageText {
  readonly text: string;
  readonly title: string | null;
  /** As it came out: a page without an article is given as a whole. */
  readonly format: TextFormat;
}

/** A page as text. Throws "too_large" for one that is not to be converted. */
export function pageText({ body, charset, isHtml, url, format }: PageSource): PageText {
  if (!isHtml || format === "raw")
    return { text: decodeText(body, charset, isHtml), title: null, format: "raw" };
  if (body.length > PAGE_LIMITS.htmlBytesMax) {
    const words = `${body.length} bytes of HTML, limit ${PAGE_LIMITS.htmlBytesMax}; the format raw gives it`;
    throw new Failure("too_large", `Cannot convert the page: ${words}`);
  }
  const html = decodeText(body, charset, isHtml);
  const page = parsePage(html, url);
  if (format === "markdown") return { text: markdownOf(page.document.body), title: page.title, format };
  const article = articleOf(page);
  if (article !== null) return { text: markdownOf(article.element), title: article.title, format };
  // The search for an article has changed the tree.
  const again = parsePage(html, url);
  return { text: markdownOf(again.document.body), title: again.title, format: "markdown" };
}
