import type { Option } from "../option-table.ts";
import {
  firstWords,
  NAME_COMMANDS,
  valuedOptions,
  valueKind,
  type WordKind,
  type WordRow,
} from "./word-table.ts";

export function fishScript(rows: readonly WordRow[]): string {
  const first = firstWords(rows);
  const lines = rows.flatMap((row) => rowLines(row));
  return `# Completes capsem in fish. Made by: capsem completions fish

function __capsem_names
    CAPSEM_NO_AUTOSTART=1 command capsem $argv --names 2>/dev/null
end

# The words before the current one, without options and their values; nothing after --.
function __capsem_words
    set -l pending 0
    set -l tokens (commandline -opc)
    for word in $tokens[2..-1]
        if test $pending = 1
            set pending 0
        else if test "$word" = --
            echo --
        else if contains -- $word ${valuedOptions(rows).join(" ")}
            set pending 1
        else if not string match -q -- '-*' $word
            echo -- $word
        end
    end
end

# Whether the command is this one and so many of its words are there.
function __capsem_at
    set -l words (__capsem_words)
    contains -- -- $words; and return 1
    set -l key (string split ' ' -- $argv[1])
    set -l size (count $key)
    set -l more (math (count $words) - $size)
    test $more -ge 0; or return 1
    test "$words[1..$size]" = "$key"; or return 1
    test (count $argv) -lt 2; and return 0
    test $more -ge $argv[2]; and test $more -le $argv[3]
end

function __capsem_none
    test (count (__capsem_words)) -eq 0
end

complete -c capsem -f
${first.map((word) => `complete -c capsem -n __capsem_none -a ${word} -d ${quoted(summaryOf(rows, word))}`).join("\n")}
${lines.join("\n")}
`;
}

function rowLines({ key, options, words, repeats }: WordRow): string[] {
  const optionLines = options.map((option) => optionLine(key, option));
  const wordLines = words.flatMap((word, at) => {
    const last = repeats && at === words.length - 1 ? 64 : at;
    const offered = offer(word);
    return offered === "" ? [] : [`complete -c capsem -n "__capsem_at '${key}' ${at} ${last}" ${offered}`];
  });
  return [...optionLines, ...wordLines];
}

function optionLine(key: string, option: Option): string {
  const short = option.short === undefined ? "" : ` -s ${option.short}`;
  const value = option.value === undefined ? "" : ` -r ${offer(valueKind(option)) || "-f"}`;
  return `complete -c capsem -n "__capsem_at '${key}'" -l ${option.name}${short}${value} -d ${quoted(option.summary)}`;
}

function offer(word: WordKind): string {
  switch (word.kind) {
    case "vm":
    case "ledger":
    case "rule":
    case "setting":
    case "ask":
    case "credential":
    case "server":
      return `-f -a '(__capsem_names ${NAME_COMMANDS[word.kind].replace(" --names", "")})'`;
    case "file":
      return "-F";
    case "place":
      return "-F -a '(__capsem_names list | string replace -r \"\\$\" :)'";
    case "choice":
      return `-f -a '${word.choices.join(" ")}'`;
    case "other":
      return "";
  }
}

function summaryOf(rows: readonly WordRow[], word: string): string {
  return rows.find(({ key }) => key === word)?.summary ?? "";
}

function quoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
