import type { Option } from "../option-table.ts";
import {
  firstWords,
  NAME_COMMANDS,
  typedNames,
  valuedOptions,
  valueKind,
  type WordKind,
  type WordRow,
} from "./word-table.ts";

/**
 * The part that bash and zsh share: tables as `case`, which both read alike. A kind is one word: `vm`, `file`,
 * `place`, `other`, a kind of names, or `=a,b` for a choice.
 */
export function posixTables(rows: readonly WordRow[]): string {
  const values = valueKinds(rows);
  return `
_capsem_first='${firstWords(rows).join(" ")}'

# Of a command: its options, what its words are, and whether the last may come again.
_capsem_row() {
  _capsem_options= _capsem_kinds= _capsem_repeats= _capsem_own=
  case "$1" in
${rows.map((row) => rowCase(row, values)).join("\n")}
    *) return 1 ;;
  esac
}

# What follows an option that takes a value; false for any other word. Of the row, where that says more.
_capsem_value() {
  case "$1" in
${valueCases(rows, values).join("\n")}
    *) return 1 ;;
  esac
  case "$_capsem_own" in
    *" $1="*)
      _capsem_kind=\${_capsem_own#*" $1="}
      _capsem_kind=\${_capsem_kind%%" "*}
      ;;
  esac
}

# Names of a kind; the second argument is the program.
_capsem_names() {
  case "$1" in
${Object.entries(NAME_COMMANDS)
  .map(([kind, words]) => `    ${kind}) CAPSEM_NO_AUTOSTART=1 "$2" ${words} 2>/dev/null ;;`)
  .join("\n")}
  esac
}
`;
}

function rowCase(row: WordRow, values: ReadonlyMap<string, string>): string {
  const { key, options, words, repeats } = row;
  const names = options.flatMap(typedNames).filter((name) => name.startsWith("--"));
  const kinds = words.map(kindWord).join(" ");
  return `    '${key}') _capsem_options='${names.join(" ")}' _capsem_kinds='${kinds}' _capsem_repeats='${repeats ? 1 : ""}' _capsem_own='${ownKinds(row, values)}' ;;`;
}

function valueKinds(rows: readonly WordRow[]): Map<string, string> {
  const kinds = new Map<string, string>();
  for (const option of rows.flatMap(({ options }) => options)) addValue(kinds, option);
  return kinds;
}

function valueCases(rows: readonly WordRow[], kinds: ReadonlyMap<string, string>): string[] {
  return valuedOptions(rows).map((name) => `    ${name}) _capsem_kind='${kinds.get(name) ?? "other"}' ;;`);
}

/** Options of a command whose values are of another sort than the same name has elsewhere: `--scope==a,b`. */
function ownKinds(row: WordRow, kinds: ReadonlyMap<string, string>): string {
  const own = row.options.flatMap((option) => {
    if (option.value === undefined) return [];
    const kind = kindWord(valueKind(option));
    return typedNames(option).flatMap((name) => (kinds.get(name) === kind ? [] : [`${name}=${kind}`]));
  });
  return own.length === 0 ? "" : ` ${own.join(" ")} `;
}

/** One name may have values of several sorts in several commands: the most telling one is that of the others. */
function addValue(kinds: Map<string, string>, option: Option): void {
  if (option.value === undefined) return;
  const word = kindWord(valueKind(option));
  for (const name of typedNames(option)) {
    if ((kinds.get(name) ?? "other") === "other") kinds.set(name, word);
  }
}

function kindWord(word: WordKind): string {
  return word.kind === "choice" ? `=${word.choices.join(",")}` : word.kind;
}
