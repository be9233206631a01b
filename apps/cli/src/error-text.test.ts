import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { adviceOf, faultLine, textOfFailure } from "./error-text.ts";
import { copiedEvent, evaluateOptions } from "./evaluate-hint.ts";
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

const UNREGISTERED =
  'Cannot connect to tool server "tracker": the credential in its header Authorization is not registered, or is for other hosts than api.test';

const ADVICE: [string, string, object, boolean, string[], string[]][] = [
  ...(["policy", "upstream_failed"] as const).map((kind): (typeof ADVICE)[number] => [
    ...([kind, UNREGISTERED, { rule_id: "egress.credential" }, false] as const),
    ["mcp", "call", "tracker", "search"],
    [
      "give it again: capsem credentials inject NAME --host api.test; those that there are: capsem credentials list",
    ],
  ]),
  [
    "policy",
    "no",
    { rule_id: RULE },
    false,
    ["exec", "dev", "--", "git", "commit", "-m", "a b"],
    ["why: capsem rules evaluate --command 'git commit -m '\\''a b'\\''' --vm dev"],
  ],
  ["policy", "no", { rule_id: RULE }, false, ["run", "ls"], ["why: capsem rules evaluate --command ls"]],
  ["policy", "no", { rule_id: RULE }, false, ["list"], [`the rule: capsem rules show ${RULE}`]],
  ["policy", "no", {}, false, ["list"], []],
  [
    "policy",
    "Cannot give what the command wrote, which has run: blocked",
    { rule_id: RULE },
    false,
    ["exec", "dev", "ls"],
    [`the rule: capsem rules show ${RULE}`],
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
  [
    "invalid_input",
    "no",
    { grant: "[::1]:80" },
    false,
    ["mcp", "add", "db", "http://[::1]/"],
    ["if that address is meant: capsem mcp add db 'http://[::1]/' --grant '[::1]:80'"],
  ],
  [
    "invalid_input",
    "no",
    { grant: "10.0.0.1:80" },
    false,
    ["status"],
    ["if that address is meant: capsem mcp add NAME URL --grant 10.0.0.1:80"],
  ],
  [
    "mcp_server_not_found",
    "no",
    {},
    false,
    ["mcp", "tools", "x"],
    ["those that there are: capsem mcp servers"],
  ],
  [
    "mcp_tool_not_found",
    "no",
    {},
    false,
    ["mcp", "call", "a b", "t"],
    ["those that there are: capsem mcp tools 'a b'"],
  ],
  [
    "mcp_server_disabled",
    "no",
    {},
    false,
    ["mcp", "call", "tracker", "t"],
    ["declare it without --disabled: capsem mcp add tracker URL"],
  ],
  [
    "mcp_server_timeout",
    "no",
    {},
    false,
    ["mcp", "call", "tracker", "t"],
    ["give that server more time: capsem mcp add tracker URL --timeout-secs N"],
  ],
  ["timeout", "no", {}, false, ["mcp", "call", "tracker", "t"], []],
];

test.each(ADVICE)("of %s %j %j it says what to do", (kind, message, facts, retryable, argv, lines) => {
  expect(adviceOf(new Failure(kind, message, { facts: { ...facts }, retryable }), typed(...argv))).toEqual(
    lines,
  );
});

const fault = (message: string, subject: string) => ({
  faults: [{ code: "locked", message, file: null, line: null, column: null, subject }],
});
const LOCKED: [string, object, string[]][] = [
  [
    'Cannot change "limits.running_max": the corporation has set it',
    fault("set", "limits.running_max"),
    ["the corporation's policy has it: capsem corp info"],
  ],
  [
    'Cannot change "corp.rules.x": only the user\'s rules can be changed',
    fault("not yours", "corp.rules.x"),
    ["the corporation's policy has it: capsem corp info"],
  ],
  [
    'Cannot change "mcp.servers.x": the corporation has declared it',
    fault("declared", "mcp.servers.x"),
    ["the corporation's policy has it: capsem corp info"],
  ],
  // Said of a key that no corporation need have set: it is none of the user's.
  ['Cannot change "corp.rule_files": it is for corp.toml only', fault("set", "corp.rule_files"), []],
  [
    'Cannot change "profiles.rules.x": it stands in another rule file',
    fault("elsewhere", "profiles.rules.x"),
    ["where it stands: capsem rules show profiles.rules.x"],
  ],
  ['Cannot change "default.x": only the user\'s rules can be changed', fault("built in", "default.x"), []],
  ['Cannot approve "ask_a" for always: the corporation\'s rule asks', {}, []],
];
test.each(LOCKED)(
  "of what is locked, the corporation is named only where it is the reason: %s",
  (message, facts, lines) => {
    const failure = new Failure("locked", `${message}`, { facts: { ...facts } });
    expect(adviceOf(failure, typed("settings")).filter((line) => !line.startsWith("  "))).toEqual(lines);
  },
);

const ASKED: [string[], string, string][] = [
  [
    ["create", "--name", "box"],
    "Cannot create the VM",
    "--type vm.lifecycle --field vm.lifecycle.action=create --field vm.name=box",
  ],
  [["run", "ls"], "Cannot create the VM: blocked", "--type vm.lifecycle --field vm.lifecycle.action=create"],
  [["run", "ls"], "Cannot run the command: blocked", "--command ls"],
  [
    ["exec", "dev", "-u", "root", "-w", "src", "make it"],
    "no",
    "--command 'make it' --field process.exec.user=root --field process.exec.cwd=/workspace/src --vm dev",
  ],
  [["delete", "dev"], "no", "--type vm.lifecycle --field vm.lifecycle.action=delete --vm dev"],
  [["delete", "dev", "box"], "no", "--type vm.lifecycle --field vm.lifecycle.action=delete"],
  [["rename", "dev", "box"], "no", "--type vm.lifecycle --field vm.lifecycle.action=rename --vm dev"],
  [["purge"], "no", "--type vm.lifecycle --field vm.lifecycle.action=purge"],
  [["files", "rm", "dev", "../etc/x"], "no", "--type file.event --field file.delete.path=/etc/x --vm dev"],
  [
    ["files", "mkdir", "dev", "a b"],
    "no",
    "--type file.event --field 'file.create.path=/workspace/a b' --vm dev",
  ],
  [
    ["files", "rename", "dev", "a", "b"],
    "no",
    "--type file.event --field file.delete.path=/workspace/a --field file.create.path=/workspace/b --vm dev",
  ],
  [
    ["settings", "set", "asks.timeout_secs=9"],
    "no",
    "--type settings.change --field settings.key=asks.timeout_secs --field settings.source=user",
  ],
  [
    ["rules", "delete", "x"],
    "no",
    "--type settings.change --field settings.key=profiles.rules.x --field settings.source=user",
  ],
  [
    ["credentials", "delete", "gh"],
    "no",
    "--type settings.change --field settings.key=credentials.gh --field settings.source=user",
  ],
  [
    ["mcp", "add", "bugs", "https://a.test/"],
    "no",
    "--type settings.change --field settings.key=mcp.servers.bugs --field settings.source=user",
  ],
  [
    ["mcp", "default", "allow"],
    "no",
    "--type settings.change --field settings.key=profiles.rules.mcp-default --field settings.source=user",
  ],
  [
    ["mcp", "approve", "bugs", "a b"],
    "no",
    "--type settings.change --field 'settings.key=mcp.pins.bugs.a b' --field settings.source=user",
  ],
];
test.each(ASKED)("%j is asked about again in the words of rules", (argv, message, options) => {
  expect(evaluateOptions(typed(...argv), message)).toBe(options);
});

test("a copy is asked about by the file that it was about", () => {
  const tried = copiedEvent("import", "sub/../.env");
  expect(evaluateOptions({ ...typed("cp", ".env", "dev:"), tried }, "no")).toBe(
    "--type file.import --field file.import.path=/workspace/.env --vm dev",
  );
  const out = { ...typed("cp", "dev:/etc/x", "."), tried: copiedEvent("export", "/etc/x") };
  expect(evaluateOptions(out, "no")).toBe("--type file.export --field file.export.path=/etc/x --vm dev");
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
