import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type CliRunner, createCliRunner, type RunOptions } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

const URL_OF = "https://tracker.test/mcp";
let cli: CliRunner;

beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
  await cli.run(["mcp", "add", "tracker", URL_OF]);
  await cli.run(["mcp", "refresh", "tracker"]);
}, 60_000);
afterAll(() => cli.close());

const mcp = (args: readonly string[], options: RunOptions = {}) => cli.run(["mcp", ...args], options);

async function good(...args: string[]): Promise<string> {
  const ran = await mcp(args);
  expect(ran.code, ran.stderr + ran.stdout).toBe(0);
  return ran.stdout;
}

test("a server is declared, listed, looked at and forgotten", async () => {
  const added = await mcp([
    "add",
    "mail",
    "https://mail.test/mcp",
    "--transport",
    "sse",
    "--timeout-secs",
    "20",
  ]);
  expect(added).toMatchObject({
    code: 0,
    stdout: "mail is declared at https://mail.test/mcp\n",
    stderr: "capsem: look at its tools: capsem mcp refresh mail\n",
  });
  const lines = (await good("servers")).split("\n");
  expect(lines[0]).toMatch(/^NAME +STATE +TOOLS +SOURCE +LAST SEEN +ADDRESS$/);
  expect(lines).toContainEqual(
    expect.stringMatching(/^handbook +unseen +0 +corp +- +https:\/\/handbook\.test\/mcp$/),
  );
  expect(lines).toContainEqual(expect.stringMatching(/^local +ok +1 +builtin +20\S+ \S+ +built in$/));
  expect(lines).toContainEqual(
    expect.stringMatching(/^mail +unseen +0 +user +- +https:\/\/mail\.test\/mcp$/),
  );
  expect(await good("servers", "--names")).toBe("handbook\nlocal\nmail\ntracker\n");
  const seen = (await good("refresh", "mail")).split("\n");
  expect(seen[0]).toMatch(/^TOOL +CALL +PERMISSION +DEFINITION +DESCRIPTION$/);
  expect(seen).toContainEqual(expect.stringMatching(/^search +allow +default +approved +Searches issues$/));
  const [found] = (JSON.parse(await good("ls", "--json")) as { servers: { name: string }[] }).servers.filter(
    ({ name }) => name === "mail",
  );
  expect(found).toMatchObject({ transport: "sse", timeout_secs: 20, tools: 3 });
  const off = await mcp(["add", "mail", "https://mail.test/mcp", "--disabled"]);
  expect(off).toMatchObject({
    stdout: "mail is declared at https://mail.test/mcp, and is off\n",
    stderr: "",
  });
  expect(await good("remove", "mail")).toBe("mail is forgotten\n");
  expect(await mcp(["rm", "mail"])).toMatchObject({
    code: 1,
    stderr:
      'capsem: Cannot find tool server "mail": it is not declared\ncapsem: those that there are: capsem mcp servers\n',
  });
});

test("the subject in short says where programs in a VM find their tools", async () => {
  expect(await good("info")).toMatch(
    /^in a VM +\/run\/capsem-mcp-server \(stdio\), http:\/\/mcp\.capsem\.internal\/mcp$/m,
  );
  expect(await good("info")).toMatch(/^default +not set: the preset decides$/m);
  expect(JSON.parse(await good("info", "--json"))).toMatchObject({ servers: 3, failed: 0 });
});

test("a private address is refused with what would allow it, and that allows it", async () => {
  const url = "http://127.0.0.1:8080/mcp";
  const refused = await mcp(["add", "db", url]);
  expect(refused.code).toBe(1);
  const [, advice = ""] = /if that address is meant: capsem (mcp .*)\n$/.exec(refused.stderr) ?? [];
  expect(advice).toBe(`mcp add db ${url} --grant 127.0.0.1:8080`);
  expect((await cli.run(advice.split(" "))).code).toBe(0);
  const json = await mcp(["add", "other", url, "--json"]);
  expect(JSON.parse(json.stdout)).toMatchObject({
    error: { kind: "invalid_input", grant: "127.0.0.1:8080" },
  });
  await good("remove", "db");
});

test("a secret is named and never given: the word of one is refused and not said again", async () => {
  for (const header of [
    "Authorization=Bearer canary-9f",
    "X-Api-Key=canary-9f",
    "cookie=canary-9f",
    "X-TOKEN=canary-9f",
  ]) {
    const ran = await mcp(["add", "keyed", URL_OF, "--header", header]);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain("capsem credentials inject NAME --host HOST");
    expect(ran.stderr + ran.stdout).not.toContain("canary");
  }
  const unknown = await mcp(["add", "keyed", URL_OF, "--header", "Authorization=Bearer credential:tracke"]);
  expect(unknown).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('Cannot find credential "tracke"'),
  });
  await cli.run(["credentials", "inject", "tracker", "--host", "tracker.test"], { input: "a long secret" });
  const seen: string[] = [];
  const headers = ["--header", "Authorization=Bearer credential:tracker", "--header", "X-Team=core=a"];
  seen.push(await good("add", "keyed", URL_OF, ...headers, "--json"));
  expect(JSON.parse(seen[0] ?? "")).toMatchObject({ headers: ["Authorization", "X-Team"] });
  expect(seen.join()).not.toContain("blake3");
  await good("remove", "keyed");
});

test("what a tool meets is said for all, and for one", async () => {
  expect(await good("default")).toBe("not set: the preset decides\n");
  expect(await good("default", "ask")).toBe("ask (rule profiles.rules.mcp-default)\n");
  expect(await good("permit", "tracker", "create", "block")).toBe(
    "tracker create: block; a call meets block now (rule profiles.rules.mcp-tool-000000000000)\n",
  );
  const lines = (await good("tools", "tracker")).split("\n");
  expect(lines).toContainEqual(expect.stringMatching(/^search +ask +default +approved/));
  expect(lines).toContainEqual(expect.stringMatching(/^create +block +block +approved/));
  expect(await good("permit", "tracker", "create", "default")).toMatch(
    /^tracker create: nothing is said of it; /,
  );
  expect(JSON.parse(await good("default", "default", "--json"))).toEqual({
    permission: "default",
    rule_id: null,
  });
  expect(await good("tools", "tracker", "--names")).toBe("search\ncreate\nfail\n");
});

test("a tool is called with texts, JSON, a whole object, standard input, and in a VM's name", async () => {
  expect(
    await good("call", "tracker", "search", "--arg", "text=hello", "--arg", "n=5", "--arg", 'deep={"a":[1]}'),
  ).toBe('{"text":"hello","n":5,"deep":{"a":[1]}}\n');
  expect(await good("call", "tracker", "search")).toBe("{}\n");
  const whole = ["call", "tracker", "search", "--json-args"];
  expect(await good(...whole, '{"q": "a=b"}', "--vm", "dev")).toBe('{"q":"a=b"}\n');
  expect(await mcp([...whole, "-"], { input: '{"q": 1}' })).toMatchObject({ code: 0, stdout: '{"q":1}\n' });
  expect(JSON.parse(await good("call", "tracker", "search", "--arg", "q=x", "--json"))).toMatchObject({
    is_error: false,
    result: { structuredContent: { q: "x" } },
  });
});

test("a tool's own failure is exit code 1 and its words are the output", async () => {
  expect(await mcp(["call", "tracker", "fail"])).toMatchObject({
    code: 1,
    stdout: "it did not work\n",
    stderr: "capsem: tracker fail says that it failed\n",
  });
});

test("a refused call says how to ask why, in the words of rules", async () => {
  await good("permit", "tracker", "create", "block");
  const ran = await mcp(["call", "tracker", "create", "--arg", "title=it's", "--vm", "dev"]);
  expect(ran.code).toBe(1);
  const fields = [
    "mcp.method=tools/call",
    "mcp.transport=direct",
    "mcp.server.name=tracker",
    "mcp.server.external=true",
    "mcp.server.pinned=true",
    "mcp.tool_call.name=create",
    `'mcp.request.arguments={"title":"it'\\''s"}'`,
  ];
  const words = fields.map((field) => `--field ${field}`).join(" ");
  expect(ran.stderr).toBe(
    "capsem: Cannot call tracker__create: block is set for this tool (rule profiles.rules.mcp-tool-000000000000)\n" +
      `capsem: why: capsem rules evaluate --type mcp.tool_call ${words} --vm dev\n`,
  );
  await good("permit", "tracker", "create", "default");
});

test("what there is to approve is shown first, and nobody approves by not being there", async () => {
  await good("add", "changing", "https://changing.test/mcp");
  await good("refresh", "changing");
  expect(await good("approve", "changing")).toBe("nothing of changing waits for approval\n");
  await good("refresh", "changing");
  const shown = await mcp(["pins", "changing"]);
  expect(shown.stdout).toMatch(/^TOOL +DEFINITION +APPROVED +APPROVED HASH +HASH NOW\n/);
  const difference = [
    "search: has changed since it was approved (- approved, + now)",
    '  name: "search"',
    '- description: "Searches issues"',
    '+ description: "Searches, and mails what it finds"',
  ].join("\n");
  expect(shown.stdout).toContain(difference);
  expect(shown.stdout).toContain(
    'delete: is new, and was never approved (+ now)\n+ name: "delete"\n+ description: "Deletes issues\\u001b[2J"\n',
  );
  expect(shown.stderr).toBe("capsem: approve them: capsem mcp approve changing [TOOL]\n");
  for (const args of [
    ["approve", "changing"],
    ["approve", "changing", "--json"],
  ]) {
    const refused = await mcp(args);
    expect(refused.code).toBe(2);
    expect(refused.stdout + refused.stderr).toContain("add --yes where you have seen the difference");
  }
  expect(await good("approve", "changing", "search", "--yes")).toBe(
    `${difference}\n\nchanging search: approved\n`,
  );
  const rest = JSON.parse(await good("approve", "changing", "--yes", "--json")) as {
    pins: { tool: string }[];
  };
  expect(rest.pins.map(({ tool }) => tool).sort()).toEqual(["create", "delete", "fail"]);
  expect((await mcp(["servers"])).stderr).toBe("");
  await good("remove", "changing");
});

const REFUSED: [string[], number, RegExp][] = [
  [["add", "x"], 2, /mcp add NAME URL/],
  [["add", "x", URL_OF, "--transport", "stdio"], 2, /it is one of auto, http, sse/],
  [["add", "x", URL_OF, "--timeout-secs", "0.5"], 2, /a whole number from 1 to 300 is needed/],
  [["add", "x", URL_OF, "--header", "nonsense"], 2, /Cannot use --header: K=V is needed/],
  [["add", "x", URL_OF, "--header", "A=1", "--header", "A=2"], 2, /Cannot use --header A twice/],
  [["add", "handbook", URL_OF], 1, /the corporation has declared it\ncapsem: .*capsem corp info\n$/],
  [["refresh", "nothing"], 1, /those that there are: capsem mcp servers\n$/],
  [
    ["permit", "tracker", "search", "alow"],
    2,
    /it is one of allow, ask, block, default, did you mean allow\?/,
  ],
  [["permit", "tracker", "nothing", "allow"], 1, /those that there are: capsem mcp tools tracker\n$/],
  [["default", "never"], 2, /it is one of allow, ask, block, default/],
  [["call", "tracker", "search", "--arg", "x"], 2, /KEY=VALUE is needed/],
  [["call", "tracker", "search", "--json-args", "["], 2, /it is not JSON/],
  [["call", "tracker", "search", "--json-args", "[]"], 2, /an object is needed/],
  [["call", "tracker", "search", "--json-args", "{}", "--arg", "a=b"], 2, /give one of them/],
  [["call", "tracker", "search", "--vm", "dv"], 1, /did you mean "dev"\?/],
  [["approve", "tracker", "nothing", "--yes"], 1, /Cannot find tool "nothing" of server "tracker"/],
];
test.each(REFUSED)("mcp %j exits with %i and says why", async (args, code, text) => {
  const ran = await mcp(args);
  expect(ran.code, ran.stderr).toBe(code);
  expect(ran.stderr).toMatch(text);
});

test("a server that is away is said, with where to look", async () => {
  await good("add", "away", "https://away.test/mcp");
  const ran = await mcp(["refresh", "away"]);
  expect(ran.code).toBe(1);
  expect(ran.stderr).toMatch(/nobody listens there\ncapsem: how tool servers are: capsem mcp servers;/);
  const listed = await mcp(["servers"]);
  expect(listed.stdout).toMatch(/^away +failed/m);
  expect(listed.stderr).toBe("capsem: away: nobody listens there\n");
  await good("remove", "away");
});

test("the group's help has both kinds of commands", async () => {
  const text = await good("--help");
  for (const words of ["mcp add NAME URL", "mcp install CLIENT", "mcp call SERVER TOOL"])
    expect(text).toContain(words);
});
