import { Args } from "./args.ts";
import { usageError } from "./cli-error.ts";
import { COMMANDS, type Command } from "./command-table.ts";
import { COMMON_OPTIONS, type Option } from "./option-table.ts";
import { suggest } from "./suggest.ts";

export type Parsed =
  | { readonly kind: "run"; readonly command: Command; readonly args: Args }
  /** Null: of everything. A word without a command of its own is a group's. */
  | { readonly kind: "help"; readonly topic: string | null };

/** Options may stand anywhere before `--`. */
export function parse(argv: readonly string[]): Parsed {
  // Options of every command may come before it.
  const at = argv.findIndex((word) => !isCommonFlag(word));
  const leading = at < 0 ? argv : argv.slice(0, at);
  const words = argv.slice(leading.length);
  const [first, second] = words;
  if (first === undefined || first === "--help" || first === "-h") return { kind: "help", topic: null };
  if (first === "help") return { kind: "help", topic: topicOf(words.slice(1)) };
  if (first === "--version" || first === "-v") return parse(["version", ...leading, ...words.slice(1)]);
  if (first.startsWith("-"))
    throw usageError(`Cannot use option ${first}: a command comes first, see capsem help`);
  const pair = second === undefined ? undefined : findCommand(`${first} ${second}`);
  const command = pair ?? findCommand(first);
  if (command === undefined) {
    if (isGroup(first)) {
      if (second === undefined || second === "--help" || second === "-h")
        return { kind: "help", topic: first };
      throw unknown(`${first} ${second}`);
    }
    throw unknown(first);
  }
  return parseCommand(command, [...leading, ...words.slice(pair === undefined ? 1 : 2)]);
}

function isCommonFlag(word: string): boolean {
  return word !== "--help" && COMMON_OPTIONS.some((option) => word === `--${option.name}`);
}

export function findCommand(name: string): Command | undefined {
  return COMMANDS.find((command) => command.name === name || command.aliases?.includes(name) === true);
}

export function isGroup(word: string): boolean {
  return COMMANDS.some((command) => command.name.startsWith(`${word} `));
}

export function unknown(name: string): Error {
  const names = COMMANDS.flatMap((command) => [command.name, ...(command.aliases ?? [])]);
  const groups = names.flatMap((each) => (each.includes(" ") ? [each.split(" ")[0] ?? ""] : []));
  const near = suggest(name, [...new Set([...names, ...groups])]);
  const hint = near === null ? "see capsem help" : `did you mean ${JSON.stringify(near)}?`;
  return usageError(`Cannot find command ${JSON.stringify(name)}: ${hint}`);
}

function topicOf(words: readonly string[]): string | null {
  const [first, second] = words.filter((word) => !word.startsWith("-"));
  if (first === undefined) return null;
  const pair = second === undefined ? undefined : findCommand(`${first} ${second}`);
  if (second !== undefined && pair === undefined && isGroup(first)) throw unknown(`${first} ${second}`);
  const topic = pair?.name ?? (isGroup(first) ? first : findCommand(first)?.name);
  if (topic === undefined) throw unknown(first);
  return topic;
}

function parseCommand(command: Command, argv: readonly string[]): Parsed {
  const words: string[] = [];
  const options = new Map<string, string[]>();
  let rest: string[] | null = null;
  const queue = [...argv];
  for (let word = queue.shift(); word !== undefined; word = queue.shift()) {
    if (word === "--") {
      rest = queue.splice(0);
    } else if (word.startsWith("-") && word !== "-") {
      takeOption(command, word, queue, options);
    } else words.push(word);
  }
  if (options.has("help")) return { kind: "help", topic: command.name };
  if (rest !== null && command.takesCommand !== true) words.push(...rest.splice(0));
  checkWords(command, words, rest);
  return {
    kind: "run",
    command,
    args: new Args(words, command.takesCommand === true ? rest : null, options),
  };
}

function takeOption(command: Command, word: string, queue: string[], options: Map<string, string[]>): void {
  const equals = word.startsWith("--") ? word.indexOf("=") : -1;
  const name = equals < 0 ? word : word.slice(0, equals);
  const known = [...(command.options ?? []), ...COMMON_OPTIONS];
  const option = known.find((each) => name === `--${each.name}` || name === `-${each.short}`);
  if (option === undefined) throw unknownOption(command, name, known);
  const value = takeValue(option, name, equals < 0 ? undefined : word.slice(equals + 1), queue);
  const before = options.get(option.name) ?? [];
  if (before.length > 0 && option.value !== undefined && option.repeats !== true)
    throw usageError(`Cannot use ${name} twice`);
  options.set(option.name, [...before, value]);
}

function takeValue(option: Option, name: string, given: string | undefined, queue: string[]): string {
  if (option.value === undefined) {
    if (given !== undefined) throw usageError(`Cannot use ${name} with a value: it takes none`);
    return "";
  }
  const value = given ?? queue.shift();
  if (value === undefined || (given === undefined && value === "--"))
    throw usageError(`Cannot use ${name}: it needs ${option.value}`);
  return value;
}

function unknownOption(command: Command, name: string, known: readonly Option[]): Error {
  if (command.refuses?.some((each) => name === `--${each}`) === true)
    return usageError(
      `Cannot use ${name}: others on this machine can read it there, and the shell keeps it; pipe the secret in, or type it when asked`,
    );
  const near = suggest(
    name,
    known.map((option) => `--${option.name}`),
  );
  if (near !== null) return usageError(`Cannot use option ${name}: did you mean ${near}?`);
  const hint =
    command.takesCommand === true ? "words of the command go after --" : `see capsem help ${command.name}`;
  return usageError(`Cannot use option ${name}: ${hint}`);
}

function checkWords(command: Command, words: readonly string[], rest: readonly string[] | null): void {
  const [min, max] = command.words;
  if (words.length >= min && words.length <= max) return;
  if (words.length > max && command.takesCommand === true && rest === null)
    throw usageError(`Cannot use ${command.name}: give the command as one string, or its words after --`);
  throw usageError(`Cannot use ${command.name}: usage is capsem ${command.usage}`);
}
