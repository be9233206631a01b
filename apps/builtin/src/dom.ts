import { DOMParser } from "linkedom/worker";
import { PAGE_LIMITS } from "./limits.ts";
import { isElement, type Tree, type TreeElement, type TreeNode } from "./tree.ts";

/** A page as a tree without what is no text of it. */
export interface Page {
  readonly document: Tree;
  readonly title: string | null;
  readonly elements: number;
}

/** Programs, styles, and what shows something from elsewhere or nothing at all. */
const DROPPED: ReadonlySet<string> = new Set([
  ...["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "IFRAME", "FRAME", "FRAMESET", "OBJECT", "EMBED", "APPLET"],
  ...["SVG", "CANVAS", "AUDIO", "VIDEO", "LINK", "META", "BASE", "INPUT", "SELECT", "TEXTAREA", "DIALOG"],
]);
const TEXT = 3;
const COMMENT = 8;

/**
 * Nothing of it runs or is loaded. Links are made whole by the page's address, and those that are no address of the web
 * (`javascript:`, `data:`) lose it. What lies deeper than any page does is left as its text, for whoever walks the tree
 * calls itself.
 */
export function parsePage(html: string, url: string): Page {
  // A part of a page would be taken for a whole one, its first element for all of it.
  const whole = /<html[\s>]/i.test(html) ? html : `<!doctype html><html><body>${html}</body></html>`;
  const document = new DOMParser().parseFromString(whole, "text/html") as unknown as Tree;
  const base = baseOf(document, url);
  const title = document.querySelector("title")?.textContent?.replace(/\s+/g, " ").trim() || null;
  return { document, title, elements: prune(document, base) };
}

function baseOf(document: Tree, url: string): string {
  const own = document.querySelector("base")?.getAttribute("href") ?? "";
  return URL.canParse(own, url) ? new URL(own, url).href : url;
}

/** Without calling itself, whatever the tree is. Returns how many elements are left. */
function prune(document: Tree, base: string): number {
  const deepest: TreeElement[] = [];
  let elements = 0;
  let depth = 0;
  let node: TreeNode | null = document.documentElement;
  while (node !== null) {
    const isDropped: boolean = node.nodeType === COMMENT || DROPPED.has(node.nodeName.toUpperCase());
    if (isElement(node) && !isDropped) {
      elements += 1;
      if (depth === PAGE_LIMITS.depthMax) deepest.push(node);
      makeWhole(node, base);
    }
    if (node.nodeType === TEXT) joinTexts(node);
    const inner: TreeNode | null = isDropped ? null : node.firstChild;
    if (inner !== null) {
      depth += 1;
      node = inner;
      continue;
    }
    const left: TreeNode = node;
    while (node !== null && node.nextSibling === null) {
      node = node.parentNode;
      depth -= 1;
    }
    node = node === null || depth < 0 ? null : node.nextSibling;
    if (isDropped) left.remove();
  }
  for (const element of deepest) {
    const text = element.textContent;
    element.textContent = text;
  }
  return elements;
}

/** The parser begins a new one at each entity, and what stands at a beginning may have a meaning in Markdown. */
function joinTexts(first: TreeNode): void {
  let text = "";
  for (let next = first.nextSibling; next?.nodeType === TEXT; next = first.nextSibling) {
    text += next.textContent ?? "";
    next.remove();
  }
  if (text !== "") first.textContent = (first.textContent ?? "") + text;
}

const LINKS = { A: "href", IMG: "src" } as const;

function makeWhole(element: TreeElement, base: string): void {
  const tag = element.nodeName.toUpperCase();
  if (tag !== "A" && tag !== "IMG") return;
  const name = LINKS[tag];
  const given = element.getAttribute(name);
  if (given === null) return;
  const url = URL.canParse(given, base) ? new URL(given, base) : null;
  if (url !== null && ["http:", "https:", "mailto:"].includes(url.protocol))
    element.setAttribute(name, url.href);
  else element.removeAttribute(name);
}
