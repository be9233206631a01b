import { expect, test } from "vitest";
import { COMMANDS } from "./command-table.ts";
import { helpJson, helpOf } from "./help.ts";

/** What scripts and fingers rely on: a difference is a question, answered by `vitest run -u` where it is meant. */
test("the commands, their usage, options and exit codes are pinned", async () => {
  const rows = helpJson(null).commands as {
    name: string;
    aliases: string[];
    usage: string[];
    options: { name: string; short?: string; value?: string; choices?: string[]; repeats?: boolean }[];
    exit_codes: string;
  }[];
  const text = rows.map(({ name, aliases, usage, options, exit_codes: exits }) => {
    const shown = options.map(({ name: option, short, value, choices, repeats }) => {
      const values = choices === undefined ? (value ?? "") : choices.join("|");
      return `  --${option}${short === undefined ? "" : `, -${short}`} ${values}${repeats === true ? " ..." : ""}`.trimEnd();
    });
    const also = aliases.length === 0 ? [] : [`  also ${aliases.join(", ")}`];
    return [
      `${name} (${exits.startsWith("Exit code: the command") ? "job" : "capsem"})`,
      ...usage.map((each) => `  ${each}`),
      ...also,
      ...shown,
    ].join("\n");
  });
  await expect(`${text.join("\n")}\n`).toMatchFileSnapshot("testing/commands.golden.txt");
});

test("the overview has each command on one line", () => {
  const lines = helpOf(null).split("\n");
  for (const { name } of COMMANDS)
    expect(lines.filter((line) => new RegExp(`^  ${name}(,| {2})`).test(line))).toHaveLength(1);
});

test.each([80, 60, 132])(
  "no line of a help is wider than %i columns, which an example may be below 80",
  (columns) => {
    const groups = [
      ...new Set(COMMANDS.flatMap(({ name }) => (name.includes(" ") ? [name.split(" ")[0] ?? ""] : []))),
    ];
    for (const topic of [null, ...groups, ...COMMANDS.map(({ name }) => name)])
      for (const line of helpOf(topic, columns).split("\n"))
        if (columns >= 80 || !line.startsWith("  capsem "))
          expect(line.length, line).toBeLessThanOrEqual(columns);
  },
);

test("a word that names something the service knows is completed by a command that exists", async () => {
  const { NAME_COMMANDS } = await import("./completion/word-table.ts");
  for (const words of Object.values(NAME_COMMANDS)) {
    const command = COMMANDS.find(({ name }) => `${name} --names` === words);
    expect(
      command?.options?.some(({ name }) => name === "names"),
      words,
    ).toBe(true);
  }
});
