import { COMMANDS, type Command } from "./command-table.ts";
import { COMMON_OPTIONS, type Option } from "./option-table.ts";

const EXIT_CODES = {
  job: "Exit code: the command's own, 128+n for signal n, 124 at its time limit, 126 or 127 when it cannot be run,\n125 when Capsem failed.",
  capsem: "Exit code: 0, 1 when it failed, 2 for wrong usage.",
} as const;

export function helpOf(topic: string | null): string {
  if (topic === null) return overview(COMMANDS);
  const command = COMMANDS.find((each) => each.name === topic);
  return command === undefined ? group(topic) : details(command);
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

function overview(commands: readonly Command[]): string {
  const rows = commands.map((command): [string, string] => [
    namesOf(command),
    firstSentence(command.summary),
  ]);
  return [
    "Capsem runs commands in real Linux VMs.",
    "",
    "Usage: capsem COMMAND [OPTIONS]",
    "",
    ...table(rows),
    "",
    "capsem help COMMAND tells more. Every command but shell takes --json.",
    "Wrong usage is exit code 2, and 125 for run, exec and shell, whose exit code is the command's.",
    "",
  ].join("\n");
}

function group(topic: string): string {
  const commands = COMMANDS.filter((command) => command.name.startsWith(`${topic} `));
  const rows = commands.map((command): [string, string] => [command.usage, firstSentence(command.summary)]);
  return [`Usage: capsem ${topic} COMMAND [OPTIONS]`, "", ...table(rows), ""].join("\n");
}

function details(command: Command): string {
  const usages = command.usage
    .split(" | ")
    .map((usage, at) => `${at === 0 ? "Usage: " : "       "}capsem ${usage}`);
  const options = optionsOf(command);
  const names = command.aliases === undefined ? [] : [`Also: ${command.aliases.join(", ")}`, ""];
  return [
    ...usages,
    "",
    ...command.summary.split(". "),
    "",
    ...names,
    "Options:",
    ...table(options.map((option) => [optionText(option), option.summary])),
    "",
    "Examples:",
    ...command.examples.map((example) => `  ${example}`),
    "",
    EXIT_CODES[command.exits],
    "",
  ].join("\n");
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

function table(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}
