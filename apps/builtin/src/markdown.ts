import TurndownService from "turndown";
import type { TreeElement } from "./tree.ts";

/** A part of a page as Markdown. It calls itself as deep as the tree is. */
export function markdownOf(element: TreeElement): string {
  return converter()
    .turndown(element as never)
    .trim();
}

let made: TurndownService | undefined;

function converter(): TurndownService {
  if (made !== undefined) return made;
  const service = new TurndownService({
    headingStyle: "atx",
    hr: "---",
    bulletListMarker: "-",
    codeBlockStyle: "fenced",
    emDelimiter: "*",
  });
  addTables(service);
  // An anchor that leads nowhere is its text.
  service.addRule("anchor", {
    filter: (node) => node.nodeName === "A" && node.getAttribute("href") === null,
    replacement: (content) => content,
  });
  service.addRule("struck", {
    filter: (node) => ["DEL", "S", "STRIKE"].includes(node.nodeName),
    replacement: (content) => `~~${content}~~`,
  });
  made = service;
  return service;
}

/** Tables as GitHub writes them; one whose first row is no heading gets an empty one, for a table needs it. */
function addTables(service: TurndownService): void {
  service.addRule("cell", {
    filter: ["th", "td"],
    replacement: (content) =>
      `| ${content
        .trim()
        .replace(/\s*\n\s*/g, " ")
        .replaceAll("|", "\\|")} `,
  });
  service.addRule("row", {
    filter: "tr",
    replacement: (content, node) => {
      const line = `${content.trim()} |`;
      if (content.trim() === "") return "";
      const isFirst = isFirstRow(node as TreeElement);
      return isFirst ? `\n${line}\n${"| --- ".repeat(cellsOf(node as TreeElement))}|` : `\n${line}`;
    },
  });
  service.addRule("section", { filter: ["thead", "tbody", "tfoot"], replacement: (content) => content });
  service.addRule("table", {
    filter: "table",
    replacement: (content) => `\n\n${content.trim()}\n\n`,
  });
  service.addRule("caption", { filter: "caption", replacement: (content) => `${content.trim()}\n\n` });
}

function cellsOf(row: TreeElement): number {
  let cells = 0;
  for (let node = row.firstElementChild; node !== null; node = node.nextElementSibling) cells += 1;
  return cells;
}

function isFirstRow(row: TreeElement): boolean {
  if (row.previousElementSibling !== null) return false;
  const section = row.parentElement;
  if (section === null || section.nodeName === "TABLE") return true;
  const before = section.previousElementSibling;
  return before === null || before.nodeName === "CAPTION" || before.nodeName === "COLGROUP";
}
