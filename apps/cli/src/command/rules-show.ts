import type { RuleInfo } from "@capsem/api";
import { CapsemError } from "@capsem/sdk";
import type { Handler } from "../context.ts";
import { printableLines, renderPairs } from "../render.ts";
import { suggest } from "../suggest.ts";

/** One rule whole, and where it stands. */
export const show: Handler = async ({ client, output, json }, args) => {
  const { rules } = await (await client()).rules.list();
  const found = findRule(rules, args.word(0));
  if (json) {
    await output.json(found);
    return 0;
  }
  await output.print(
    renderPairs([
      ["rule", found.id],
      ["where", whereOf(found)],
      ["action", found.enabled ? found.action : `${found.action} (off)`],
      ["priority", String(found.priority)],
      ["detection", found.detection_level],
      ["reason", found.reason === "" ? "-" : found.reason],
    ]),
  );
  const match = found.match.trim().split("\n");
  await output.print(`match\n${match.map((line) => `  ${printableLines(line)}\n`).join("")}`);
  return 0;
};

/** An id, or a name: the user's own before those that are nobody's to change. */
function findRule(rules: readonly RuleInfo[], word: string): RuleInfo {
  const named = rules.filter(({ id, name }) => id === word || name === word);
  const [found] = [...named].sort((left, right) => rank(left, word) - rank(right, word));
  if (found !== undefined) return found;
  const near = suggest(
    word,
    rules.map(({ id, name }) => (word.includes(".") ? id : name)),
  );
  const hint = near === null ? "see capsem rules list --all" : `did you mean ${near}?`;
  throw new CapsemError("rule_not_found", `Cannot find rule ${JSON.stringify(word)}: ${hint}`, {
    status: 404,
  });
}

const SOURCES: readonly RuleInfo["source"][] = ["user", "corp", "builtin"];

function rank({ id, source }: RuleInfo, word: string): number {
  return id === word ? -1 : SOURCES.indexOf(source);
}

function whereOf({ source, file, line }: RuleInfo): string {
  if (file === null) return source === "builtin" ? "built in" : "-";
  return line === null ? file : `${file}:${line}`;
}
