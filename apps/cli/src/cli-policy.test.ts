import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type CliRunner, createCliRunner, endOf, said } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

const PUSH = 'process.command.contains("git push")';
let cli: CliRunner;

beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
  await cli.run([
    "rules",
    "put",
    "no-push",
    "--match",
    PUSH,
    "--action",
    "block",
    "--reason",
    "not from here",
  ]);
  const held = ["--match", 'process.command.contains("deploy")', "--action", "ask", "--priority", "20"];
  await cli.run(["rules", "put", "deploys", ...held, "--reason", "a person looks first"]);
}, 60_000);
afterAll(() => cli.close());

async function good(...args: string[]): Promise<string> {
  const ran = await cli.run(args);
  expect(ran.code, ran.stderr + ran.stdout).toBe(0);
  return ran.stdout;
}

test("rules are a table in the order of judgement, with what happens where none matches", async () => {
  const own = await good("rules", "list");
  expect(own).toMatch(/^preset developer: 2 of yours, 1 built in; digest [0-9a-f]{12}\n/);
  const lines = own.split("\n").filter((line) => /^\d/.test(line));
  expect(lines).toEqual([
    `10        block   profiles.rules.no-push  ${PUSH}  not from here`,
    '20        ask     profiles.rules.deploys  process.command.contains("deploy")    a person looks first',
  ]);
  expect(own).toContain("where no rule matches:\n  ask: http.request\n  allow: file.import, process.exec\n");
  expect(own).toContain("before that 1 built-in rule: --all shows more\n");
  expect(await good("rules", "--all")).toContain("1001      allow   default.allow-exec");
  expect(await good("rules", "list", "--names")).toBe("no-push\ndeploys\n");
  expect(JSON.parse(await good("rules", "list", "--json"))).toMatchObject({ preset: "developer" });
});

test("a rule is put from options, or from its table in a file or on standard input", async () => {
  const file = join(cli.folder, "rule.toml");
  const text = `# why\n[profiles.rules.filed]\naction = "block"\nmatch = 'process.command == "rm -rf /"'\npriority = 30\n`;
  writeFileSync(file, text);
  expect(await good("rules", "put", "--file", file)).toBe("profiles.rules.filed holds\n");
  const again = await cli.run(["rules", "put", "filed", "--file", "-"], { input: text });
  expect(again).toMatchObject({ code: 0, stdout: "profiles.rules.filed is replaced, and holds\n" });
  const off = ["--match", 'process.command == "x"', "--action", "block", "--disabled"];
  expect(await good("rules", "put", "dead", ...off)).toBe("profiles.rules.dead is written, and off\n");
  expect(await good("rules", "list")).toMatch(/30 +block +profiles\.rules\.filed/);
  expect(await good("rules", "list")).toContain("block (off)");
  expect((await cli.run(["rules", "list"])).stderr).toContain(
    "capsem: dead, line 1: profiles.rules.dead can never",
  );
  expect(await good("rules", "delete", "filed")).toBe("profiles.rules.filed is gone\n");
  await good("rules", "rm", "dead");
});

test("each rule of a file is written, and what holds when one is refused is said", async () => {
  const table = (name: string, match: string) =>
    `[profiles.rules.${name}]\naction = "block"\nmatch = '${match}'\n`;
  const good = 'process.command == "rm"';
  const input = `${table("one", good)}${table("two", good)}`;
  const ran = await cli.run(["rules", "put", "--file", "-"], { input });
  expect(ran).toMatchObject({ code: 0, stdout: "profiles.rules.one holds\nprofiles.rules.two holds\n" });
  const half = `${table("one", good)}${table("bad", "nonsense")}${table("three", good)}`;
  const refused = await cli.run(["rules", "put", "--file", "-"], { input: half });
  expect(refused).toMatchObject({
    code: 1,
    stdout: "profiles.rules.one is replaced, and holds\n",
    stderr: expect.stringContaining("unknown field in nonsense"),
  });
  const json = await cli.run(["rules", "put", "--json", "--file", "-"], { input });
  expect(JSON.parse(json.stdout)).toMatchObject({
    rules: [
      { id: "profiles.rules.one", replaced: true },
      { id: "profiles.rules.two", replaced: true },
    ],
  });
  for (const name of ["one", "two"]) await cli.run(["rules", "delete", name]);
});

test("one rule is shown whole, with where it stands", async () => {
  expect(await good("rules", "show", "no-push")).toBe(
    [
      "rule       profiles.rules.no-push",
      "where      settings.toml:1",
      "action     block",
      "priority   10",
      "detection  none",
      "reason     not from here",
      "match",
      `  ${PUSH}`,
      "",
    ].join("\n"),
  );
  expect(await good("rules", "show", "default.allow-exec")).toContain("where      built in\n");
  expect(JSON.parse(await good("rules", "show", "--json", "no-push"))).toMatchObject({ match: PUSH });
});

const REFUSED: [string[], number, RegExp][] = [
  [["rules", "put", "x"], 2, /a name, --match and --action are needed, or --file/],
  [["rules", "put", "x", "--file", "f", "--match", "y"], 2, /beside what it says itself/],
  [["rules", "put", "x", "--file", "/nonexistent"], 1, /Cannot open "\/nonexistent": it does not exist\n$/],
  [["rules", "show", "no-psh"], 1, /did you mean no-push\?/],
  [["rules", "show", "profiles.rules.no-psh"], 1, /did you mean profiles\.rules\.no-push\?/],
  [["rules", "show", "nothing"], 1, /see capsem rules list --all/],
  [
    ["rules", "put", "x", "--match", "y", "--action", "block"],
    1,
    /has a fault\ncapsem: {3}1:9: unknown field in y\n$/,
  ],
  [
    ["rules", "put", "x", "--match", "y", "--action", "a", "--priority", "5"],
    2,
    /a whole number from 10 to 1000/,
  ],
  [["rules", "put", "corp.rules.x", "--match", PUSH, "--action", "block"], 1, /capsem corp info/],
  [["rules", "delete", "none"], 1, /Cannot find rule "none"/],
  [["rules", "evaluate"], 2, /give one of --command, --type with --field, or --event/],
  [["rules", "evaluate", "--type", "x", "--field", "=1"], 2, /KEY=VALUE is needed/],
  [["rules", "evaluate", "--type", "process.exce"], 1, /its type is unknown/],
  [["rules", "replay"], 2, /--vm VM is needed/],
  [["settings", "get", "limits.poolsize"], 1, /did you mean limits\.pool_size\?/],
  [["settings", "set", "limits.pool_size"], 2, /KEY=VALUE is needed/],
  [["settings", "set", "limits.pool_size=many"], 2, /takes a whole number from 0 to 16/],
  [["settings", "set", "confinement.allow_unconfined=yes"], 2, /takes true or false/],
  [
    ["settings", "set", "limits.running_max=1"],
    1,
    /the corporation has set it\ncapsem: .*capsem corp info\n$/,
  ],
  [["asks", "approve", "abc"], 2, /the first 6 characters that capsem asks list shows/],
  [["asks", "approve", "abcd"], 1, /none begins so/],
  [["asks", "approve", "ask_aaaaaaaaaaaaaaaa", "--scope", "ever"], 2, /one of once, vm, always/],
  [["credentials", "delete", "none"], 1, /see capsem credentials list/],
  [["credentials", "inject", "UPPER", "--host", "h"], 2, /a lower-case letter/],
  [["credentials", "inject", "name"], 2, /--host HOST is needed/],
];

test.each(REFUSED)("what cannot be done is said: %j", async (args, code, text) => {
  const ran = await cli.run(args);
  expect([ran.code, ran.stderr]).toEqual([code, expect.stringMatching(text)]);
});

test("a dry run says what would be decided, of a command, an event's fields, or a file", async () => {
  expect(await good("rules", "evaluate", "--command", "git push", "--vm", "dev")).toBe(
    "block by profiles.rules.no-push: not from here\n",
  );
  const fields = ["--field", "process.command=git push"];
  expect(await good("rules", "evaluate", "--type", "process.exec", ...fields)).toMatch(/^block/);
  const event = { type: "process.exec", fields: { "process.command": "ls" } };
  for (const input of [event, { ...event, event: { fields: event.fields } }, { event, action: "allow" }]) {
    const ran = await cli.run(["rules", "evaluate", "--event", "-"], { input: JSON.stringify(input) });
    expect(ran.stdout, ran.stderr).toMatch(/^allow by default/);
  }
  for (const input of ["{", "[]", "{}", '{"type":"x"}'])
    expect((await cli.run(["rules", "evaluate", "--event", "-"], { input })).code).toBe(2);
});

test("lint and validate exit with 1 where there is a fault, and name its place", async () => {
  const file = join(cli.folder, "bad.toml");
  writeFileSync(file, "wrong");
  for (const words of [
    ["rules", "lint", file],
    ["corp", "validate", file],
  ])
    expect(await cli.run(words)).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^\S+bad\.toml:1:9: /),
    });
  expect(await good("rules", "lint")).toBe("1 rule, no fault\n");
  writeFileSync(file, "right");
  expect(await good("corp", "validate", file)).toBe("valid: 1 rule\n");
  expect(await good("corp")).toContain("locked  limits.running_max\n");
  expect(JSON.parse(await good("corp", "reload", "--json"))).toMatchObject({ is_present: true });
});

test("settings change together or not at all", async () => {
  expect(await good("settings", "set", "limits.pool_size=4", 'profiles.rule_files=["a","b"]')).toBe(
    'limits.pool_size=4\nprofiles.rule_files=["a","b"]\n',
  );
  expect((await cli.run(["settings", "set", "limits.pool_size=5", "limits.running_max=1"])).code).toBe(1);
  expect(await good("settings", "get", "limits.pool_size")).toBe("4\n");
  expect(await good("settings", "list")).toMatch(/^limits\.pool_size +4 +you /m);
  await good("settings", "reset", "limits.pool_size", "profiles.rule_files");
  expect(await good("settings", "get", "profiles.rule_files")).toBe("[]\n");
});

test("a refused command names its rule and how to find out more, with our exit code", async () => {
  const words = 'capsem: Cannot run in VM "dev": not from here (rule profiles.rules.no-push)\n';
  expect(await cli.run(["exec", "dev", "git push 'it'"])).toMatchObject({
    code: 125,
    stdout: "",
    stderr: `${words}capsem: why: capsem rules evaluate --command 'git push '\\''it'\\''' --vm dev\n`,
  });
  const json = await cli.run(["exec", "--json", "dev", "--", "git", "push"]);
  expect(json).toMatchObject({ code: 125, stderr: "" });
  expect(JSON.parse(json.stdout)).toMatchObject({
    error: { kind: "policy", rule_id: "profiles.rules.no-push" },
  });
  expect((await cli.run(["run", "git push"])).code).toBe(125);
});

const ID = /capsem asks approve ([a-z2-7]{6})/;

/** Starts a command that is held, and gives it with its ask's id, as the user is told it. */
async function held(args: readonly string[]): Promise<{ id: string; end: ReturnType<typeof endOf> }> {
  const child = cli.start(args);
  child.stdin?.end();
  let text = "";
  child.stderr?.on("data", (part: Buffer) => {
    text += part.toString("utf8");
  });
  const end = endOf(child);
  await said(child, "stderr", "capsem asks approve");
  return { id: ID.exec(text)?.[1] ?? "", end };
}

test("a held command says for what it waits, and goes on or fails as a person answers", async () => {
  const first = await held(["exec", "dev", "echo deploy"]);
  expect(await good("asks", "list")).toMatch(
    new RegExp(
      `^ID .*\n${first.id} +4 min \\d+ s left +once, vm, always +dev +echo deploy +profiles\\.rules\\.deploys +capsem/0\\.1\\.0\n$`,
    ),
  );
  expect((await cli.run(["status"])).stdout).toContain("1 call waits, nobody watches: capsem asks list");
  expect(await good("asks", "approve", first.id, "--note", "fine")).toBe(
    `approved ${first.id}, echo deploy in dev, this once (by user uid 1000): fine\n`,
  );
  expect(await first.end).toMatchObject({ code: 0, stdout: "deploy\n" });
  const second = await held(["run", "echo deploy"]);
  await good("asks", "deny", `ask_${second.id}`);
  expect(await second.end).toMatchObject({
    code: 125,
    stderr: expect.stringContaining("(rule profiles.rules.deploys)\ncapsem: what became of the ask"),
  });
  expect((await cli.run(["asks", "approve", second.id])).stderr).toMatch(/it is denied\n$/);
  expect(JSON.parse(await good("asks", "list", "--all", "--json"))).toMatchObject({
    asks: [{ state: "denied" }, { state: "approved", note: "fine" }],
  });
  const [head, ...rows] = (await good("asks", "list", "--all")).trimEnd().split("\n");
  expect(head).toMatch(/^ID +STATE +ENDED +ANSWERED BY +SCOPE +NOTE +WHAT +VM +RULE +BY$/);
  expect(rows[1]).toMatch(
    new RegExp(`^${first.id} +approved +20.* user uid 1000 +once +fine +echo deploy +dev +profiles`),
  );
  expect(rows[0]).toMatch(new RegExp(`^${second.id} +denied +20.* user uid 1000 +- +`));
  expect(await cli.run(["asks"])).toMatchObject({ code: 0, stdout: "", stderr: "capsem: no call waits\n" });
});

test.each([["exec", "dev"], ["run"]])(
  "Ctrl-C leaves a held command of %s at once, and ends its ask",
  async (...words) => {
    const child = cli.start([...words, "echo deploy"]);
    const end = endOf(child);
    await said(child, "stderr", "capsem asks approve");
    child.kill("SIGINT");
    expect(await end).toMatchObject({ code: 130, stdout: "" });
    await expect.poll(async () => JSON.parse(await good("asks", "--json"))).toEqual({ asks: [] });
  },
);

test("a time limit of a command counts from its start, not from the question whether it may", async () => {
  const ran = await held(["exec", "--timeout", "0.2", "dev", "echo deploy"]);
  await good("asks", "approve", ran.id);
  expect(await ran.end).toMatchObject({ code: 0, stdout: "deploy\n" });
});

test("who watches sees an ask at once and what became of it, as lines or as JSON", async () => {
  const lines = cli.start(["asks", "watch"]);
  const objects = cli.start(["asks", "watch", "--json"]);
  const ends = [endOf(lines), endOf(objects)];
  const seen = Promise.all([said(lines, "stdout", "approved"), said(objects, "stdout", '"approved"')]);
  const ran = await held(["exec", "dev", "echo deploy"]);
  await good("asks", "approve", ran.id);
  await seen;
  lines.kill();
  objects.kill();
  const [plain, json] = await Promise.all(ends);
  expect(plain?.stdout).toMatch(
    new RegExp(
      `pending ${ran.id}, echo deploy in dev \\(rule profiles\\.rules\\.deploys\\)\n.*approved ${ran.id}`,
    ),
  );
  const asks = json?.stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as { state: string });
  expect(asks?.map(({ state }) => state)).toEqual(["pending", "approved"]);
});

test("a secret comes by a pipe and by no argument, and is said nowhere", async () => {
  const secret = "a-very-secret-value";
  for (const args of [
    ["github", secret, "--host", "h"],
    ["github", `--secret=${secret}`],
    ["github", "--token", secret],
  ]) {
    const ran = await cli.run(["credentials", "inject", ...args]);
    expect(ran).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("others on this machine can read it"),
    });
    expect(ran.stderr + ran.stdout).not.toContain(secret);
  }
  const words = [
    "credentials",
    "inject",
    "github",
    "--host",
    "a.example",
    "--host",
    "b.example",
    "--keep",
    "file",
  ];
  const ran = await cli.run(words, { input: `${secret}\n` });
  expect(ran).toMatchObject({
    code: 0,
    stderr: "",
    stdout: expect.stringMatching(/^credential:blake3:[0-9a-f]{64}\n$/),
  });
  expect(await good("credentials")).toMatch(/^github {2}a\.example b\.example {2}file {5}/m);
  expect(await good("credentials", "list", "--json")).not.toContain(secret);
  expect((await cli.run([...words, "--json"], { input: "short" })).code).toBe(2);
  expect((await cli.run(words, { input: secret })).stderr).toContain("its name is taken");
  const header = `Authorization=Bearer ${ran.stdout.trim()}`;
  await good("mcp", "add", "sender", "https://a.example/mcp", "--header", header);
  expect(await cli.run(["credentials", "delete", "github"])).toMatchObject({
    stdout: "github is forgotten\n",
    stderr: "capsem: tool server sender sends it, and cannot be reached without: capsem mcp servers\n",
  });
  await good("mcp", "remove", "sender");
});

test("doctor has the policy and the ledger, and says what it cannot know", async () => {
  const { stdout } = await cli.run(["doctor"]);
  expect(stdout).toMatch(
    /^ok {4}policy: developer, \d+ rules, with the corporation's\nok {4}ledger: takes rows$/m,
  );
  const none = await cli.run(["doctor"], { env: { CAPSEM_HOME: join(cli.folder, "other") } });
  expect(none.stdout).toContain("ok    policy: settings and rules are right; the service does not run\n");
  expect(none.stdout).toContain("-     ledger: not looked at: the service does not run\n");
});

test("doctor finds what would keep a service that is down from starting", async () => {
  const home = join(cli.folder, "broken");
  mkdirSync(home, { mode: 0o700 });
  writeFileSync(join(home, "settings.toml"), "[limits]\nrunning_max = 0\n", { mode: 0o600 });
  const ran = await cli.run(["doctor"], { env: { CAPSEM_HOME: home } });
  expect(ran.code).toBe(1);
  expect(ran.stdout).toContain(
    'MISS  policy: the service does not start: settings.toml:2:15: "limits.running_max" takes a whole number from 1 to 256\n      Mend what is named, in ',
  );
  expect(readdirSync(home)).toEqual(["settings.toml"]);
  const json = await cli.run(["doctor", "--json"], { env: { CAPSEM_HOME: home } });
  expect(JSON.parse(json.stdout)).toMatchObject({ ok: false });
});

test("a ledger's file is the user's alone", async () => {
  const file = join(cli.folder, "dev.jsonl");
  expect(await good("ledger", "export", "dev", "--output", file)).toMatch(/^\S+: \d+ lines, /);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readFileSync(file, "utf8")).toBe(await good("ledger", "export", "dev"));
});
