import { COMMANDS, type Command } from "./command-table.ts";
import { HELP_COLUMNS } from "./limits.ts";
import { COMMON_OPTIONS, type Option } from "./option-table.ts";
import { wrap } from "./wrap.ts";

/** Words beside a name have at least this much. */
const TEXT_COLUMNS_MIN = 54;
const EXIT_CODES = {
  job: "Exit code: the command's own, 128+n for signal n, 124 at its time limit, 126 or 127 when it cannot be run, 125 when Capsem failed.",
  capsem: "Exit code: 0, 1 when it failed, 2 for wrong usage.",
} as const;

/** No line is longer than `columns`, but for words that are. */
export function helpOf(topic: string | null, columns = HELP_COLUMNS): string {
  if (topic === null) return overview(COMMANDS, columns);
  const command = COMMANDS.find((each) => each.name === topic);
  return command === undefined ? group(topic, columns) : details(command, columns);
}

/** Of the commands that `helpOf` tells of. */
export function helpJson(topic: string | null): { commands: object[] } {
  const commands = COMMANDS.filter(
    ({ name }) => topic === null || name === topic || (!isCommand(topic) && name.startsWith(`${topic} `)),
  );
  return {
    commands: commands.map(({ name, aliases = [], usage, summary, options = [], examples, ...more }) => ({
      ...{ name, aliases, usage: usage.split(" | ").map((each) => `capsem ${each}`), summary, examples },
      options: optionsOf({ options, ...more }),
      exit_codes: EXIT_CODES[more.exits],
    })),
  };
}

function isCommand(topic: string): boolean {
  return COMMANDS.some(({ name }) => name === topic);
}

function overview(commands: readonly Command[], columns: number): string {
  const rows = commands.map((command): [string, string] => [
    namesOf(command),
    firstSentence(command.summary),
  ]);
  return [
    "Capsem runs commands in real Linux VMs.",
    "",
    "Usage: capsem COMMAND [OPTIONS]",
    "",
    ...table(rows, columns),
    "",
    ...wrap("capsem help COMMAND tells more. Every command but shell and completions takes --json.", columns),
    ...wrap(
      "Wrong usage is exit code 2, and 125 for run, exec and shell, whose exit code is the command's.",
      columns,
    ),
    "",
  ].join("\n");
}

function group(topic: string, columns: number): string {
  const commands = COMMANDS.filter((command) => command.name.startsWith(`${topic} `));
  const lines = commands.flatMap((command) => [
    ...usagesOf(command).flatMap((usage) => wrap(`  ${usage}`, columns, 6)),
    ...wrap(`      ${firstSentence(command.summary)}`, columns, 6),
  ]);
  return [`Usage: capsem ${topic} COMMAND [OPTIONS]`, "", ...lines, ""].join("\n");
}

function details(command: Command, columns: number): string {
  const usages = usagesOf(command).flatMap((usage, at) =>
    wrap(`${at === 0 ? "Usage: " : "       "}capsem ${usage}`, columns, 11),
  );
  const options = optionsOf(command);
  const names = command.aliases === undefined ? [] : [`Also: ${command.aliases.join(", ")}`, ""];
  return [
    ...usages,
    "",
    ...command.summary.split(". ").flatMap((sentence) => wrap(sentence, columns)),
    "",
    ...names,
    "Options:",
    ...table(
      options.map((option) => [optionText(option), option.summary]),
      columns,
    ),
    "",
    "Examples:",
    ...command.examples.map((example) => `  ${example}`),
    "",
    ...wrap(EXIT_CODES[command.exits], columns),
    "",
  ].join("\n");
}

function usagesOf({ usage }: Command): string[] {
  return usage.split(" | ");
}

function optionsOf({ options = [], isTerminal }: Pick<Command, "options" | "isTerminal">): Option[] {
  return [...options, ...COMMON_OPTIONS].filter(({ name }) => name !== "json" || isTerminal !== true);
}

function optionText(option: Option): string {
  const short = option.short === undefined ? "    " : `-${option.short}, `;
  const value = option.value === undefined ? "" : ` ${option.value}`;
  return `${short}--${option.name}${value}`;
}

function namesOf(command: Command): string {
  return [command.name, ...(command.aliases ?? [])].join(", ");
}

function firstSentence(summary: string): string {
  return summary.split(". ")[0] ?? summary;
}

/** A name that leaves its words too little room has the line to itself. */
function table(rows: readonly (readonly [string, string])[], columns: number): string[] {
  const widest = Math.max(...rows.map(([left]) => left.length));
  const width = Math.min(widest, Math.max(0, columns - TEXT_COLUMNS_MIN));
  const indent = width + 4;
  return rows.flatMap(([left, right]) =>
    left.length <= width
      ? wrap(`  ${left.padEnd(width)}  ${right}`, columns, indent)
      : [`  ${left}`, ...wrap(`${" ".repeat(indent)}${right}`, columns, indent)],
  );
}
