import { expect, test } from "vitest";
import { COMMANDS } from "./command-table.ts";
import { helpJson, helpOf } from "./help.ts";
import { parse } from "./parse.ts";

function told(...argv: string[]): string {
  const parsed = parse(argv);
  if (parsed.kind === "help") return `help ${parsed.topic}`;
  const { command, args } = parsed;
  const rest = args.rest === null ? "" : ` -- ${args.rest.join("|")}`;
  return `${command.name} ${args.words.join("|")}${rest}`;
}

test("commands are found by name, alias and group", () => {
  expect(told("ls")).toBe("list ");
  expect(told("rm", "a", "b")).toBe("delete a|b");
  expect(told("files", "mv", "v", "a", "b")).toBe("files rename v|a|b");
  expect(told("jobs", "dev")).toBe("jobs list dev");
  expect(told("--version")).toBe("version ");
  expect(told("--json", "status")).toBe("status ");
});

test("options may stand anywhere before --, and nothing after it is ours", () => {
  const parsed = parse(["run", "--env", "A=1", "echo", "-e", "B", "--timeout=5", "--json"]);
  if (parsed.kind !== "run") throw new Error("no command");
  expect(parsed.args.all("env")).toEqual(["A=1", "B"]);
  expect(parsed.args.number("timeout", 0, 10)).toBe(5);
  expect(parsed.args.flag("json")).toBe(true);
  expect(told("run", "--", "ls", "--help", "-x", "--")).toBe("run  -- ls|--help|-x|--");
  expect(told("files", "rm", "v", "--", "-r")).toBe("files rm v|-r");
  expect(told("cp", "-", "v:x")).toBe("cp -|v:x");
});

test("help is asked for in every usual way", () => {
  for (const argv of [[], ["--help"], ["-h"], ["help"]]) expect(told(...argv)).toBe("help null");
  expect(told("help", "run")).toBe("help run");
  expect(told("run", "-h")).toBe("help run");
  expect(told("help", "service")).toBe("help service");
  expect(told("service")).toBe("help service");
  expect(told("help", "files", "ls")).toBe("help files list");
});

test("--json before a command, alone or twice, never recurses without end", () => {
  expect(told("--json")).toBe("help null");
  expect(told("--json", "--json", "list")).toBe("list ");
  expect(told("--json", "files", "ls", "dev")).toBe("files list dev");
  expect(told("--json", "help")).toBe("help null");
  expect(told("help", "--json")).toBe("help null");
  expect(told("--json", "--version")).toBe("version ");
  const parsed = parse(["--json", "--json", "list"]);
  expect(parsed.kind === "run" && parsed.args.flag("json")).toBe(true);
});

test.each([
  [["help", "mcp", "nosuch"], /Cannot find command "mcp nosuch"/],
  [["help", "mcp", "instal"], /did you mean "mcp install"\?/],
  [["help", "nosuch"], /Cannot find command "nosuch"/],
])("help of what there is not is wrong usage: %j", (argv, text) => {
  expect(() => told(...argv)).toThrow(text);
});

test("help names each command that takes no --json, and what a rule's VM is for", () => {
  expect(helpOf(null).replace(/\s+/g, " ")).toContain("Every command but shell and completions takes --json");
  expect(helpOf("rules evaluate").replace(/\s+/g, " ")).toContain("--field vm.name=NAME");
});

test("help shows what works: short options, exit codes, no --json of a shell", () => {
  expect(helpOf("shell")).not.toContain("--json");
  expect(helpOf("files mkdir")).toContain("files mkdir [-p] VM PATH");
  expect(helpOf("files rm")).toContain("files rm [-r] VM PATH");
  expect(helpOf(null)).toContain("Wrong usage is exit code 2, and 125 for run, exec and shell");
  expect(helpOf("run")).toContain("--copy-back cannot bring");
  for (const command of COMMANDS) expect(helpOf(command.name)).not.toMatch(/apt-get update|make test/);
});

const WRONG: [string[], RegExp][] = [
  [["lisst"], /did you mean "list"\?/],
  [["rnu", "x"], /did you mean "run"\?/],
  [["service", "strat"], /did you mean "service start"\?/],
  [["zzzzzz"], /see capsem help/],
  [["help", "lisst"], /did you mean "list"\?/],
  [["--frob"], /a command comes first/],
  [["run", "--tmeout", "5", "x"], /did you mean --timeout\?/],
  [["run", "ls", "-l"], /after --/],
  [["run", "a", "b"], /one string, or its words after --/],
  [["list", "x"], /usage is capsem list/],
  [["run", "a", "b"], /^Cannot use run: /],
  [["run", "--timeout"], /needs SECS/],
  [["run", "--timeout", "--", "x"], /needs SECS/],
  [["run", "--json=yes", "x"], /takes none/],
  [["run", "--cpus", "1", "--cpus", "2", "x"], /twice/],
];

test("wrong usage is told with what was probably meant", () => {
  for (const [argv, text] of WRONG) expect(() => parse(argv), argv.join(" ")).toThrow(text);
});

test("every command has help with its usage, options, examples and exit codes", () => {
  for (const command of COMMANDS) {
    const text = helpOf(command.name);
    expect(text).toContain(`Usage: capsem ${command.name}`);
    for (const option of command.options ?? []) expect(text).toContain(`--${option.name}`);
    for (const example of command.examples) expect(text).toContain(`  ${example}\n`);
    expect(text.split("\n").every((line) => line.length <= 110)).toBe(true);
  }
});

test("help as JSON has the same commands, each with its usage, options and exit codes", () => {
  const names = (topic: string | null) => helpJson(topic).commands.map((each) => "name" in each && each.name);
  expect(names(null)).toEqual(COMMANDS.map(({ name }) => name));
  expect(names("gateway")).toEqual(["gateway start", "gateway stop", "gateway rotate", "gateway status"]);
  expect(helpJson("list").commands).toMatchObject(
    [
      {
        name: "list",
        aliases: ["ls"],
        usage: [expect.stringMatching(/^capsem list/)],
        exit_codes: /^Exit code: 0/,
      },
    ].map((each) => ({ ...each, exit_codes: expect.stringMatching(each.exit_codes) })),
  );
});

test("a number that must be whole is asked for as such", () => {
  const cases: [string[], string][] = [
    [["gateway", "start", "--port", "abc"], "a whole number from 0 to 65535 is needed"],
    [["create", "--cpus", "1.5"], "a whole number from 1 is needed"],
    [["panics", "--limit", "0"], "a whole number from 1 to 100 is needed"],
    [["create", "--memory", "0.3"], "a number from 0.25, in steps of 0.25, is needed"],
  ];
  const ranges: Record<string, [number, number, number]> = {
    port: [0, 65_535, 1],
    cpus: [1, Number.POSITIVE_INFINITY, 1],
    limit: [1, 100, 1],
    memory: [0.25, Number.POSITIVE_INFINITY, 0.25],
  };
  for (const [argv, text] of cases) {
    const parsed = parse(argv);
    const name = argv.at(-2)?.slice(2) ?? "";
    const range = ranges[name];
    if (parsed.kind !== "run" || range === undefined) throw new Error("no command");
    expect(() => parsed.args.number(name, ...range)).toThrow(text);
  }
});

test("every example is a command that is understood", () => {
  for (const example of COMMANDS.flatMap((command) => command.examples)) {
    const [, line = example] = /^source <\((.*)\)$/.exec(example) ?? [];
    const words = line.match(/"[^"]*"|\S+/g)?.map((word) => word.replace(/^"|"$/g, "")) ?? [];
    const from = words.indexOf("capsem") + 1;
    const pipe = words.indexOf("|", from);
    expect(parse(words.slice(from, pipe < 0 ? undefined : pipe)).kind, example).toBe("run");
  }
});

test("every command of the table can be loaded", async () => {
  for (const command of COMMANDS) expect(await command.load(), command.name).toBeTypeOf("function");
});
