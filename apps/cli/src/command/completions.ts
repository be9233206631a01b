import { usageError } from "../cli-error.ts";
import { COMMANDS } from "../command-table.ts";
import { bashScript } from "../completion/bash-script.ts";
import { fishScript } from "../completion/fish-script.ts";
import { wordRows } from "../completion/word-table.ts";
import { zshScript } from "../completion/zsh-script.ts";
import type { Handler } from "../context.ts";

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;

export const completions: Handler = async ({ output, json }, args) => {
  if (json) throw usageError("Cannot use --json with completions: a script is no JSON");
  const shell = args.word(0);
  const script = Object.entries(SCRIPTS).find(([name]) => name === shell)?.[1];
  if (script === undefined) {
    throw usageError(
      `Cannot complete in ${JSON.stringify(shell)}: it is one of ${Object.keys(SCRIPTS).join(", ")}`,
    );
  }
  await output.print(script(wordRows(COMMANDS)));
  return 0;
};
