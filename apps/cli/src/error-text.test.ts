import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { adviceOf, faultLine, textOfFailure } from "./error-text.ts";
import { parse } from "./parse.ts";
import { shellWord } from "./shell-word.ts";

const RULE = "profiles.rules.x";

function typed(...argv: string[]) {
  const parsed = parse(argv);
  if (parsed.kind !== "run") throw new Error("no command");
  return { name: parsed.command.name, args: parsed.args };
}

test("a refusal names its rule once", () => {
  const of = (message: string, facts?: object) =>
    textOfFailure(
      new Failure("policy", message, facts === undefined ? {} : { facts: { ...facts } }),
      new Map(),
    );
  expect(of("Cannot run: no", { rule_id: RULE })).toBe(`Cannot run: no (rule ${RULE})`);
  expect(of(`Cannot run: blocked by ${RULE}: no`, { rule_id: RULE })).toBe(
    `Cannot run: blocked by ${RULE}: no`,
  );
  expect(of("Cannot run: no")).toBe("Cannot run: no");
});

const ADVICE: [string, string, object, boolean, string[], string[]][] = [
  [
    "policy",
    "no",
    { rule_id: RULE },
    false,
    ["exec", "dev", "--", "git", "commit", "-m", "a b"],
    [
      "why, and what would be allowed: capsem rules evaluate --command 'git commit -m '\\''a b'\\''' --vm dev",
    ],
  ],
  [
    "policy",
    "no",
    { rule_id: RULE },
    false,
    ["run", "ls"],
    ["why, and what would be allowed: capsem rules evaluate --command ls"],
  ],
  [
    "policy",
    "no",
    { rule_id: RULE },
    false,
    ["cp", "a", "dev:"],
    ["why, and what would be allowed: capsem rules evaluate --type TYPE --field KEY=VALUE"],
  ],
  [
    "policy",
    "no",
    { ask_id: "ask_abcdefghijklmnop" },
    true,
    ["run", "ls"],
    ["allow it from another terminal, then try again: capsem asks approve abcdef"],
  ],
  [
    "policy",
    "no",
    { ask_id: "ask_abcdefghijklmnop" },
    false,
    ["run", "ls"],
    ["what became of the ask: capsem asks list --all"],
  ],
  [
    "ledger_broken",
    "no",
    {},
    false,
    ["start", "dev"],
    ["what is wrong with it: capsem ledger verify dev; --archive sets it aside, so that the VM starts"],
  ],
  [
    "locked",
    "no",
    { faults: [{ message: "no", file: null, line: null, column: null }] },
    false,
    ["settings"],
    ["the corporation's policy has it: capsem corp info"],
  ],
  [
    "invalid_input",
    "bad: settings.toml:3:5: one (and 1 more)",
    {
      faults: [
        { message: "one", file: "settings.toml", line: 3, column: 5 },
        { message: "two", file: null, line: null, column: null },
      ],
    },
    false,
    ["settings"],
    ["  two"],
  ],
  ["vm_not_found", "no", {}, false, ["info", "x"], []],
];

test.each(ADVICE)("of %s %j %j it says what to do", (kind, message, facts, retryable, argv, lines) => {
  expect(adviceOf(new Failure(kind, message, { facts: { ...facts }, retryable }), typed(...argv))).toEqual(
    lines,
  );
});

test("many faults are counted, and each has its place as compilers say it", () => {
  const faults = Array.from({ length: 25 }, (_, at) => ({
    message: `f${at}`,
    file: null,
    line: at,
    column: 1,
  }));
  const lines = adviceOf(new Failure("invalid_input", "no", { facts: { faults } }), null);
  expect(lines).toHaveLength(21);
  expect(lines.at(-1)).toBe("  and 5 more");
  expect(faultLine({ message: "m", file: "a.toml", line: 2, column: null })).toBe("a.toml:2: m");
});

test("a word comes back from a shell as it was", () => {
  expect(["a", "a b", "it's", "$x", "", "--flag=1"].map(shellWord)).toEqual([
    "a",
    "'a b'",
    "'it'\\''s'",
    "'$x'",
    "''",
    "--flag=1",
  ]);
});
