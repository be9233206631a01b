import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { findCommand } from "./parse.ts";
import { type CliRunner, createCliRunner } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 120_000 });

const page = readFileSync(join(import.meta.dirname, "../../../docs/mcp.md"), "utf8");
const CHAPTERS = page.split(/^## /m).slice(1);
const blocks = (text: string, language: string) =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, "gm"))].map(
    ([, block = ""]) => block,
  );

let cli: CliRunner;
beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
  writeFileSync(join(cli.folder, "key.txt"), "a long secret\n");
}, 60_000);
afterAll(() => cli.close());

/** Words as a shell splits them, as far as the page needs one. */
function wordsOf(line: string): { words: string[]; input: string } {
  const [command = "", file] = line.split(" < ");
  const words = [...command.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "");
  return {
    words: words.slice(1),
    input: file === undefined ? "" : readFileSync(join(cli.folder, file), "utf8"),
  };
}

test("the page's commands run in the order of the page, and print what it says", async () => {
  let ran = 0;
  let printed = "";
  for (const chapter of CHAPTERS) {
    for (const line of blocks(chapter, "sh").flatMap((block) => block.trim().split("\n"))) {
      // The stand-in of the service has a server that says something else at its second look.
      const { words, input } = wordsOf(line.replaceAll("mcp.example.com", "changing.example.com"));
      if (words[1] === "pins") await cli.run(["mcp", "refresh", words[2] ?? ""]);
      // Whoever reads the page has a terminal.
      if (words[1] === "approve") words.push("--yes");
      const { code, stdout, stderr } = await cli.run(words, { input });
      expect([line, code, stderr.replace(/^capsem: (?!Cannot).*\n/gm, "")]).toEqual([line, 0, ""]);
      printed += stdout;
      ran += 1;
    }
    const shown = blocks(chapter, "text").join("").trimEnd().split("\n");
    for (const line of shown) expect(printed.split("\n").map((each) => each.trimEnd())).toContain(line);
  }
  expect(ran).toBeGreaterThan(10);
});

test("the commands that it names in a sentence exist", () => {
  const named = [...page.matchAll(/`capsem ([a-z-]+(?: [a-z-]+)?)/g)].map(([, name = ""]) => name);
  expect(named.length).toBeGreaterThan(8);
  for (const name of named)
    expect(findCommand(name) ?? findCommand(name.split(" ")[0] ?? ""), name).toBeDefined();
});
