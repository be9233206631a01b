import { expect, test, vi } from "vitest";
import { PAGE_LIMITS } from "./limits.ts";
import { pageText, type TextFormat } from "./page-text.ts";

vi.setConfig({ testTimeout: 60_000 });

const convert = (html: string, format: TextFormat = "markdown", url = "https://example.com/a/b") =>
  pageText({ body: Buffer.from(html), charset: "utf-8", isHtml: true, url, format }).text;

test.each([
  ["headings", "<h1>A</h1><h3>B</h3>", "# A\n\n### B"],
  ["lists", "<ul><li>a</li><li>b<ol><li>c</li></ol></li></ul>", "-   a\n-   b\n    1.  c"],
  [
    "code",
    '<pre><code class="language-ts">let a = 1;\nlet b;</code></pre>',
    "```ts\nlet a = 1;\nlet b;\n```",
  ],
  ["emphasis", "<p><b>a</b> <i>b</i> <code>c</code> <del>d</del></p>", "**a** *b* `c` ~~d~~"],
  ["quotes", "<blockquote>a</blockquote>", "> a"],
  ["text without a page around it", "<p>a</p><p>b</p>", "a\n\nb"],
  ["entities", "<p>&lt;a&gt; &amp; &eacute;</p>", "<a> & é"],
  ["links by the page", '<a href="../c?d=1#e">x</a>', "[x](https://example.com/c?d=1#e)"],
  [
    "links by a base",
    '<head><base href="https://other.test/r/"></head><a href="s">x</a>',
    "[x](https://other.test/r/s)",
  ],
  ["images", '<img src="i.png" alt="An image">', "![An image](https://example.com/a/i.png)"],
  ["mail", '<a href="mailto:a@b.c">x</a>', "[x](mailto:a@b.c)"],
  [
    "tables",
    "<table><caption>C</caption><thead><tr><th>a</th><th>b|c</th></tr></thead><tbody><tr><td>1</td><td><p>2</p><p>3</p></td></tr></tbody></table>",
    "C\n\n| a | b\\|c |\n| --- | --- |\n| 1 | 2 3 |",
  ],
  [
    "tables without a head",
    "<table><tr><td>1</td><td>2</td></tr><tr><td>3</td><td></td></tr></table>",
    "| 1 | 2 |\n| --- | --- |\n| 3 | |",
  ],
])("%s become Markdown", (_, html, text) => {
  expect(convert(html).replace(/[ \t]+\|/g, " |")).toBe(text);
});

test.each([
  "javascript:alert(1)",
  "JaVaScRiPt:alert(1)",
  " javascript:alert(1)",
  "java\tscript:alert(1)",
  "vbscript:x",
  "data:text/html,<script>alert(1)</script>",
  "file:///etc/passwd",
  "http://[broken",
])("a link to %j loses its address", (href) => {
  const html = `<p>before <a href="${href.replaceAll('"', "&quot;").replaceAll("<", "&lt;")}">text</a> <img src="${href.replaceAll("<", "&lt;")}" alt="i"> after</p>`;
  expect(convert(html)).not.toMatch(/\]\(|script|data:|file:/i);
  expect(convert(html)).toContain("before text");
});

test("what is no text of a page is left out, wherever it stands", () => {
  const dropped = [
    "script",
    "style",
    "noscript",
    "template",
    "iframe",
    "object",
    "svg",
    "canvas",
    "textarea",
    "select",
  ];
  const html = `<p>a</p>${dropped.map((tag) => `<${tag}>SECRET<b>SECRET</b></${tag}>`).join("<p>b</p>")}<!-- SECRET --><p>c</p>`;
  const text = convert(html);
  expect(text).not.toContain("SECRET");
  expect(text.replaceAll(/\s+/g, "")).toBe(`a${"b".repeat(dropped.length - 1)}c`);
  const nested = `${"<div>".repeat(500)}<script>SECRET</script>deep${"</div>".repeat(500)}`;
  expect(convert(nested)).toBe("deep");
});

test("a page that is deeper than any loses its form there, not its text", () => {
  for (const tag of ["div", "blockquote", "ul><li", "table><tr><td"]) {
    const closing = tag.split("><").reverse().join("></");
    const html = `<p>top</p>${`<${tag}>`.repeat(4_000)}bottom${`</${closing}>`.repeat(4_000)}<p>end</p>`;
    const text = convert(html);
    expect([tag, text.includes("top"), text.includes("bottom"), text.includes("end")]).toEqual([
      tag,
      true,
      true,
      true,
    ]);
  }
});

test("a page that never closes what it opens is read all the same", () => {
  expect(convert("<div><p>a<div><b>c")).toMatch(/a[\s\S]*c/);
  expect(convert("<<<>>> <a <b href=>x</ a></b></i>")).toContain("x");
  expect(convert("")).toBe("");
  expect(convert("<html></html>")).toBe("");
  expect(convert("<html><head><title>T</title></head></html>")).toBe("");
  expect(convert("just words & more")).toBe("just words & more");
});

test("more HTML than is converted is refused with what gives it", () => {
  const html = `<p>${"x".repeat(PAGE_LIMITS.htmlBytesMax)}</p>`;
  expect(() => convert(html)).toThrow("the format raw gives it");
  expect(convert(html, "raw").length).toBe(html.length);
});

test("a page of a megabyte is converted whole", () => {
  const html = `<html><body><div><div>${Array.from({ length: 10_000 }, (_, index) => `<p>Paragraph ${index} with <a href="/${index}">a link</a> and <b>words</b> that go on and on.</p>`).join("\n")}</div></div></body></html>`;
  const text = convert(html);
  expect(text.split("\n\n")).toHaveLength(10_000);
  expect(text.endsWith("and **words** that go on and on.")).toBe(true);
});
