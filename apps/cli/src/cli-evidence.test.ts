import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type CliRunner, createCliRunner } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

let cli: CliRunner;
const user = "user uid 1000";
const env = { TZ: "Asia/Kathmandu" };

beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
  const match = 'process.command.contains("push")';
  await cli.run(["rules", "put", "no-push", "--match", match, "--action", "block", "--reason", "no"]);
  for (const command of ["echo one", "git push", "echo '\u001b[2J' two"])
    await cli.run(["exec", "dev", command]);
}, 60_000);
afterAll(() => cli.close());

async function good(...args: string[]): Promise<string> {
  const ran = await cli.run(args, { env });
  expect(ran.code, ran.stderr + ran.stdout).toBe(0);
  return ran.stdout;
}

test("a timeline tells what was done, in the reader's time, and steers no terminal", async () => {
  const text = await good("timeline", "dev");
  expect(text.split("\n").slice(0, 3)).toEqual([
    `TIME                 LAYER  OUTCOME  TOOK   ${"BY".padEnd(user.length)}  WHAT`,
    `2025-01-02 08:50:01  exec   done     1.5 s  ${user}  echo one`,
    `2025-01-02 08:50:02  exec   blocked  1.5 s  ${user}  git push  [block by profiles.rules.no-push]`,
  ]);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: none may be there.
  expect(text.replaceAll("\n", "")).not.toMatch(/[\u0000-\u001f]/);
  const last = await cli.run(["timeline", "dev", "--limit", "1"], { env });
  expect(last.stdout).toContain("2025-01-02 08:50:03");
  expect(last.stderr).toBe("capsem: there is more before this: --limit and --since choose\n");
  expect(JSON.parse(await good("timeline", "dev", "--json"))).toMatchObject({
    entries: [{ outcome: "done" }, { outcome: "blocked" }, {}],
    truncated: false,
  });
  expect((await cli.run(["timeline", "dev", "--layers", "exec,nothing"])).stderr).toMatch(
    /they are exec, file, /,
  );
});

test("history has the commands, the last at the end", async () => {
  expect(await good("history", "dev", "--search", "echo one")).toBe(
    "TIME                 ENDED   TOOK   COMMAND\n2025-01-02 08:50:01  exit 0  1.5 s  echo one\n",
  );
  expect(await good("history", "dev")).toMatch(/blocked {2}1\.5 s {2}git push\n.*two\n$/);
  expect(await cli.run(["history", "dev", "--search", "none"])).toMatchObject({
    code: 0,
    stderr: 'capsem: no command has "none"\n',
  });
});

test("events are a line each, with the fields that tell them apart", async () => {
  expect(await good("events", "dev", "--action", "block")).toBe(
    [
      "TIME                 DECISION  TYPE          RULE                    FIELDS",
      '2025-01-02 08:50:02  block     process.exec  profiles.rules.no-push  process.command="git push"  (no)',
      "",
    ].join("\n"),
  );
  expect(await good("events", "dev", "--action", "block", "--full")).toBe(
    '2025-01-02 08:50:02  block  process.exec  by profiles.rules.no-push: no\n    process.command = "git push"\n',
  );
  const { events } = JSON.parse(await good("events", "dev", "--limit", "2", "--json")) as {
    events: object[];
  };
  expect(events).toHaveLength(2);
});

const CHOSEN: [string[], number, RegExp][] = [
  [["--rule", "no-push"], 0, /profiles\.rules\.no-push {2}process/],
  [["--rule", "profiles.rules.no-push"], 0, /profiles\.rules\.no-push {2}process/],
  [["--rule", "posture.developer"], 0, /nothing was decided/],
  [["--rule", "no-psh"], 1, /Cannot find rule "no-psh": did you mean no-push\?/],
  [["--rule", "profiles.rules.no-psh"], 1, /did you mean profiles\.rules\.no-push\?/],
  [["--rule", "something-else"], 1, /none here has this name/],
  [["--type", "process.exec"], 0, /process\.exec {2}/],
  [["--type", "file.import"], 0, /nothing was decided/],
  [["--type", "process.exce"], 1, /Cannot find event type "process\.exce": did you mean process\.exec\?/],
];
test.each(CHOSEN)("events of %j are chosen, and what there is not is said", async (words, code, text) => {
  const ran = await cli.run(["events", "dev", ...words], { env });
  expect([ran.code, ran.stdout + ran.stderr]).toEqual([code, expect.stringMatching(text)]);
});

test("stats of a VM are counted from what was recorded", async () => {
  const text = await good("stats", "dev");
  expect(text).toContain("decided   2 allowed, 0 asked, 1 blocked\n");
  expect(text).toMatch(/^profiles\.rules\.no-push {2}1 {8}1 /m);
  expect(JSON.parse(await good("stats", "dev", "--json"))).toMatchObject({ commands: 3 });
});

test("a VM that is gone is found by its name, the last one first, and that is said", async () => {
  for (const word of ["first", "second"]) {
    await cli.run(["create", "--name", "twice"]);
    await cli.run(["exec", "twice", `echo ${word}`]);
    await cli.run(["delete", "twice"]);
  }
  const ran = await cli.run(["history", "twice"]);
  expect(ran.stdout).toContain("echo second");
  expect(ran.stderr).toMatch(/^capsem: 2 VMs had the name "twice"; this is the last, vm_\w+ \(until 2025/);
  await cli.run(["create", "--name", "twice"]);
  const living = await cli.run(["history", "twice"]);
  expect(living).toMatchObject({ code: 0, stdout: "" });
  expect(living.stderr).toMatch(
    /^capsem: 2 VMs that are gone had the name "twice" too, vm_\w+ the last \(until 2025.*\); capsem ledger list has all\ncapsem: no command was run\n$/,
  );
  expect((await cli.run(["timeline", "twise"])).stderr).toContain('did you mean "twice"?');
  const ledgers = await good("ledger");
  expect(ledgers.match(/ twice {2}gone /g)).toHaveLength(2);
  await cli.run(["delete", "twice"]);
});

test("one that is gone and had a living one's name is told of with its id", async () => {
  await cli.run(["create", "--name", "again"]);
  await cli.run(["exec", "again", "echo first"]);
  await cli.run(["delete", "again"]);
  await cli.run(["create", "--name", "again"]);
  await cli.run(["exec", "again", "echo second"]);
  const ran = await cli.run(["timeline", "again"], { env });
  expect(ran.stdout).toContain("echo second");
  expect(ran.stdout).not.toContain("echo first");
  const [, id = ""] =
    /^capsem: a VM that is gone had the name "again" too: (vm_\w+) \(until 2025/.exec(ran.stderr) ?? [];
  expect(await good("timeline", id)).toContain("echo first");
  await cli.run(["delete", "again"]);
});

test("a broken ledger is named with its row and exit code 1, and 0 when it was set aside", async () => {
  await cli.run(["create", "--name", "broken"]);
  expect(await cli.run(["ledger", "verify", "broken"])).toMatchObject({
    code: 1,
    stdout: expect.stringMatching(
      /^BROKEN {2}broken \(vm_\w+\): row 2 \(exec_events, event 000000000002\) is altered: /,
    ),
    stderr: "capsem: its VM does not start; --archive sets the ledger aside, so that it does\n",
  });
  await cli.run(["delete", "broken"]);
  // Nothing starts any more, so that nothing is to be done about it.
  expect(await cli.run(["ledger", "verify", "broken"])).toMatchObject({ code: 1, stderr: "" });
  const all = await cli.run(["ledger", "verify", "--all", "--json"]);
  expect(all.code).toBe(1);
  expect(JSON.parse(all.stdout)).toMatchObject({ ok: false });
  expect((await cli.run(["ledger", "verify"])).code).toBe(2);
  expect((await cli.run(["ledger", "verify", "dev", "--all"])).code).toBe(2);
  const aside = await cli.run(["ledger", "verify", "broken", "--archive"]);
  expect(aside).toMatchObject({ code: 0, stdout: expect.stringContaining("set aside as") });
  expect(await good("ledger", "verify", "broken")).toMatch(
    /^whole {3}broken \(vm_\w+\): 0 rows, all signed\n$/,
  );
});

test("an export is JSON lines, and --json is no second form of it", async () => {
  const lines = (await good("ledger", "export", "dev"))
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as object);
  expect(lines).toMatchObject([{ rows: 3 }, { n: 1 }, { n: 2 }, { n: 3 }]);
  expect((await cli.run(["ledger", "export", "dev", "--json"])).code).toBe(2);
  expect((await cli.run(["ledger", "export", "dev", "--output", cli.folder])).stderr).toMatch(
    /it is there, and no file/,
  );
});

test("a past is judged again by the rules of now", async () => {
  const match = 'process.command == "echo one"';
  await cli.run(["rules", "put", "later", "--match", match, "--action", "block"]);
  const text = await good("rules", "replay", "--vm", "dev");
  expect(text).toMatch(/^3 events: 2 decided alike, 1 otherwise, 0 undecidable\n/);
  expect(text).toMatch(/2025-01-02 08:50:01 {2}allow {2}block {2}profiles\.rules\.later {2}echo one/);
  await cli.run(["rules", "delete", "later"]);
});
