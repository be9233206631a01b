import type { Command, NameKind } from "../command-table.ts";
import { COMMON_OPTIONS, type Option } from "../option-table.ts";

/** What may stand at one place of a command line. `place` is a local file, or a VM's name and a colon. */
export type WordKind =
  | { readonly kind: "vm" | "file" | "place" | "other" | NameKind }
  | { readonly kind: "choice"; readonly choices: readonly string[] };

/** One row: what follows these first words. */
export interface WordRow {
  /** "list", or "files list"; a group's first word alone has its second words as a choice. */
  readonly key: string;
  readonly summary: string;
  readonly options: readonly Option[];
  readonly words: readonly WordKind[];
  /** The last word may come again. */
  readonly repeats: boolean;
}

/** Commands with their aliases, and groups, as the shells' scripts need them. */
export function wordRows(commands: readonly Command[]): WordRow[] {
  const rows = new Map<string, WordRow>();
  for (const command of commands) {
    for (const key of [command.name, ...(command.aliases ?? [])]) rows.set(key, rowOf(key, command));
  }
  for (const group of groupsOf(rows)) {
    const seconds = [...rows.keys()].filter((key) => key.startsWith(`${group} `));
    const choices = seconds.map((key) => key.slice(group.length + 1));
    const alone = rows.get(group);
    rows.set(group, {
      key: group,
      summary: alone?.summary ?? `Commands: ${choices.join(", ")}`,
      options: alone?.options ?? [],
      words: [{ kind: "choice", choices }, ...(alone?.words.slice(1) ?? [])],
      repeats: false,
    });
  }
  return [...rows.values(), ...helpRows([...rows.values()])];
}

/** Help takes the words of every command. */
function helpRows(rows: readonly WordRow[]): WordRow[] {
  const groups = rows.filter(({ key }) => rows.some((other) => other.key.startsWith(`${key} `)));
  const row = (key: string, words: readonly WordKind[]): WordRow => ({
    ...{ key, summary: "Show help", options: COMMON_OPTIONS, words, repeats: false },
  });
  const first: WordKind = { kind: "choice", choices: firstWords(rows) };
  return [row("help", [first]), ...groups.map(({ key, words }) => row(`help ${key}`, words.slice(0, 1)))];
}

/** First words of all commands, each once. */
export function firstWords(rows: readonly WordRow[]): string[] {
  return rows.flatMap(({ key }) => (key.includes(" ") ? [] : [key]));
}

/** The command that lists the names of a kind; it starts no service. */
export const NAME_COMMANDS = {
  vm: "list --names",
  ledger: "ledger list --names",
  rule: "rules list --names",
  setting: "settings list --names",
  ask: "asks list --names",
  credential: "credentials list --names",
  server: "mcp servers --names",
} as const satisfies Readonly<Record<Exclude<NameKind, "file"> | "vm", string>>;

/** Names of all options that take a value, as they are typed. */
export function valuedOptions(rows: readonly WordRow[]): string[] {
  const names = rows.flatMap(({ options }) =>
    options.flatMap((option) => (option.value === undefined ? [] : typedNames(option))),
  );
  return [...new Set(names)].sort();
}

export function typedNames({ name, short }: Option): string[] {
  return [`--${name}`, ...(short === undefined ? [] : [`-${short}`])];
}

export function valueKind({ value = "", choices }: Option): WordKind {
  if (choices !== undefined) return { kind: "choice", choices };
  if (value === "VM") return { kind: "vm" };
  return { kind: ["DIR", "PATH", "FILE"].includes(value) ? "file" : "other" };
}

function groupsOf(rows: ReadonlyMap<string, WordRow>): Set<string> {
  return new Set([...rows.keys()].flatMap((key) => (key.includes(" ") ? [key.split(" ")[0] ?? ""] : [])));
}

function rowOf(key: string, command: Command): WordRow {
  const placeholders = placeholdersOf(command);
  const common = COMMON_OPTIONS.filter(({ name }) => name !== "json" || command.isTerminal !== true);
  return {
    key,
    summary: command.summary.split(". ")[0] ?? "",
    options: [...(command.options ?? []), ...common],
    words: placeholders.map((word) => kindOf(command, word)),
    repeats: command.words[1] > placeholders.length,
  };
}

/** The words of the first usage: capitals that are no option's value. */
function placeholdersOf({ name, usage, words }: Command): string[] {
  const [first = ""] = usage.split(" | ");
  const rest = first.slice(name.length).replace(/\[?--?[a-z-]+( [A-Z_]+)?\]?/g, " ");
  const found = rest.match(/[A-Z][A-Z_]*/g) ?? [];
  return found.filter((word) => word !== "OPTIONS" && word !== "WORD").slice(0, words[1]);
}

function kindOf({ name, choices, completes }: Command, word: string): WordKind {
  const closed = choices?.[word];
  const named = completes?.[word];
  if (named !== undefined) return { kind: named };
  if (closed !== undefined) return { kind: "choice", choices: closed };
  if (name === "cp") return { kind: "place" };
  return { kind: word === "VM" ? "vm" : "other" };
}
