import type { Option } from "../option-table.ts";
import {
  firstWords,
  typedNames,
  valuedOptions,
  valueKind,
  type WordKind,
  type WordRow,
} from "./word-table.ts";

/**
 * The part that bash and zsh share: tables as `case`, which both read alike. A kind is one word: `vm`, `file`,
 * `place`, `other`, or `=a,b` for a choice.
 */
export function posixTables(rows: readonly WordRow[]): string {
  return `
_capsem_first='${firstWords(rows).join(" ")}'

# Of a command: its options, what its words are, and whether the last may come again.
_capsem_row() {
  _capsem_options= _capsem_kinds= _capsem_repeats=
  case "$1" in
${rows.map(rowCase).join("\n")}
    *) return 1 ;;
  esac
}

# What follows an option that takes a value; false for any other word.
_capsem_value() {
  case "$1" in
${valueCases(rows).join("\n")}
    *) return 1 ;;
  esac
}

_capsem_vms() {
  CAPSEM_NO_AUTOSTART=1 "$1" list --names 2>/dev/null
}
`;
}

function rowCase({ key, options, words, repeats }: WordRow): string {
  const names = options.flatMap(typedNames).filter((name) => name.startsWith("--"));
  const kinds = words.map(kindWord).join(" ");
  return `    '${key}') _capsem_options='${names.join(" ")}' _capsem_kinds='${kinds}' _capsem_repeats='${repeats ? 1 : ""}' ;;`;
}

function valueCases(rows: readonly WordRow[]): string[] {
  const kinds = new Map<string, string>();
  for (const option of rows.flatMap(({ options }) => options)) addValue(kinds, option);
  return valuedOptions(rows).map((name) => `    ${name}) _capsem_kind='${kinds.get(name) ?? "other"}' ;;`);
}

/** One name may have values of several sorts in several commands: then the most telling one is offered. */
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
