import { expect, test } from "vitest";
import { applyEdits, type PolicyEdit } from "./edit.ts";
import { renderFault } from "./fault.ts";
import { emptyLayer, parseLayer } from "./layer.ts";
import { patchLayerText } from "./layer-text.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { renderActivePolicy, renderLayer } from "./render.ts";
import type { RuleSource } from "./rule.ts";
import { HIDDEN_VALUE, withoutHeaderValues } from "./server-declaration.ts";
import { compileSnapshot } from "./snapshot.ts";
import { layerOf, sha256, snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";

const KEY = "Bearer canary-5f0c";
const WHOLE = `
[mcp.servers.tracker]
url = "https://tracker.test/mcp"
transport = "sse"
protocol = "modern"
enabled = false
grants = ["10.1.2.3:8443", "[fd00::1]:443"]
headers = { Authorization = "${KEY}", X-Team = "core" }
timeout_secs = 20
`;

function faultsOf(text: string, source: RuleSource = "user", options = {}): string[] {
  const parsed = parseLayer(source, text, options);
  return parsed.kind === "ok" ? [] : parsed.faults.map((fault) => renderFault(fault, "f"));
}

const serverOf = (lines: string, name = "a") => `[mcp.servers.${name}]\nurl = "https://a.test/"\n${lines}\n`;

test("a file declares servers, in every way that TOML has for a table", () => {
  const whole = layerOf("user", WHOLE).servers.get("tracker");
  expect(whole).toMatchObject({
    name: "tracker",
    url: "https://tracker.test/mcp",
    transport: "sse",
    protocol: "modern",
    isEnabled: false,
    grants: ["10.1.2.3:8443", "[fd00::1]:443"],
    timeoutSecs: 20,
    at: { line: 2, column: 2 },
  });
  expect([...(whole?.headers ?? [])]).toEqual([
    ["Authorization", KEY],
    ["X-Team", "core"],
  ]);
  const forms = [
    '[mcp.servers.a]\nurl = "https://a.test/"\n[mcp.servers.a.headers]\nX-A = "1"\n',
    'mcp.servers.a.url = "https://a.test/"\nmcp.servers.a.headers.X-A = "1"\n',
    'mcp = { servers = { a = { url = "https://a.test/", headers = { X-A = "1" } } } }\n',
    '[mcp]\nservers.a = { url = "https://a.test/", headers.X-A = "1" }\n',
    '[mcp.servers]\n"a" = { "url" = "https://a.test/", headers."X-A" = "1" }\n',
  ];
  for (const form of forms) {
    const made = layerOf("user", form).servers.get("a");
    expect(made, form).toMatchObject({ transport: "auto", protocol: "auto", isEnabled: true, grants: [] });
    expect([...(made?.headers ?? [])], form).toEqual([["X-A", "1"]]);
    expect(made?.timeoutSecs, form).toBe(300);
  }
});

test.each<[string, string]>([
  ["[mcp.servers.a]\n", 'f:1:2: a server needs "url" [missing_key]'],
  [serverOf("", "local"), 'f:1:2: Cannot name server "local": the name is ours [bad_name]'],
  [serverOf("", "builtin"), "the name is ours [bad_name]"],
  [serverOf("", "a__b"), "a name is a-z, 0-9, - and single _, at most 32 [bad_name]"],
  [serverOf("", "A"), "[bad_name]"],
  [serverOf("", "-a"), "[bad_name]"],
  [serverOf("", "a_"), "[bad_name]"],
  [serverOf("", '"a.b"'), "[bad_name]"],
  [serverOf("", "constructor__"), "[bad_name]"],
  [serverOf("", "a".repeat(33)), "[bad_name]"],
  [serverOf("transprt = 'sse'"), 'f:3:1: a server has no key "transprt"; did you mean "transport"?'],
  [serverOf("command = 'npx'"), "programs on the host are not started [legacy_key]"],
  [serverOf("transport = 'stdio'"), 'f:3:13: "transport" takes one of auto, http, sse [bad_value]'],
  [serverOf("protocol = 1"), '"protocol" takes one of auto, legacy, modern'],
  [serverOf("enabled = 'yes'"), '"enabled" takes true or false'],
  [serverOf("timeout_secs = 0"), '"timeout_secs" takes a whole number from 1 to 300'],
  [serverOf("timeout_secs = 301"), "[bad_value]"],
  [serverOf("timeout_secs = 1.5"), "[bad_value]"],
  [serverOf("grants = 'a:1'"), '"grants" takes a list of at most 16 texts HOST:PORT'],
  [serverOf("grants = ['a']"), "[bad_value]"],
  [serverOf("grants = ['a:0']"), "[bad_value]"],
  [serverOf("grants = ['a:65536']"), "[bad_value]"],
  [serverOf("grants = ['a b:1']"), "[bad_value]"],
  [serverOf("grants = [1]"), "[bad_value]"],
  [serverOf("headers = 'x'"), '"headers" takes a table'],
  [serverOf('headers = { "a b" = "x" }'), 'f:3:13: header "a b" is no name of a header'],
  [serverOf('headers = { Host = "x" }'), 'header "Host" is not for a declaration: the connection sets it'],
  [serverOf('headers = { Mcp-Session-Id = "x" }'), "the connection sets it"],
  [serverOf('headers = { Transfer-Encoding = "chunked" }'), "the connection sets it"],
  [serverOf('headers = { X-A = "1", x-a = "2" }'), 'header "x-a" is there twice'],
  [serverOf('headers = { X-A = "1\\r\\nX-B: 2" }'), "takes one line of at most 4096 printable ASCII"],
  [serverOf('headers = { X-A = "é" }'), "printable ASCII"],
  [serverOf("headers = { X-A = 1 }"), "printable ASCII"],
  [serverOf("headers = { X-A = { b = 'c' } }"), "printable ASCII"],
  [
    serverOf('headers = { X-A = "credential:blake3:a credential:blake3:b" }'),
    "holds more than one reference to a credential",
  ],
  ['[[mcp.servers.a]]\nurl = "https://a.test/"\n', "f:1:3: a server is a table [bad_value]"],
  ["[mcp.servers]\na = 1\n", "f:2:1: a server is a table [bad_value]"],
  ["[mcp.server.a]\nurl = 'x'\n", 'no table "mcp.server.a"; did you mean "mcp.servers.a"? [unknown_key]'],
  ["[mcpServers.a]\nurl = 'x'\n", 'did you mean "mcp.servers.a"? [unknown_key]'],
])("%j is refused where it stands", (text, fault) => {
  const faults = faultsOf(text);
  expect(faults).toHaveLength(1);
  expect(faults[0]).toContain(fault);
});

test.each([
  "ftp://a.test/",
  "a.test/mcp",
  "file:///etc/passwd",
  "https:/a.test/",
  "https:a.test",
  "https://",
  "https://user@a.test/",
  "https://user:word@a.test/",
  "https://@a.test/",
  "https://:@a.test/",
  "https://a.test/#part",
  "https://a.test/#",
  " https://a.test/",
  "https://a.test/\\tx",
  "https://ä.test/",
  "https://a.test:99999/",
  `https://a.test/${"x".repeat(2_048)}`,
])("no server is reached at %j", (url) => {
  expect(faultsOf(`[mcp.servers.a]\nurl = "${url}"\n`)).toEqual([
    expect.stringMatching(/^f:2:7: "url" takes .* \[bad_value\]$/),
  ]);
});

test("an @ behind the host is no user", () => {
  expect(layerOf("user", '[mcp.servers.a]\nurl = "https://a.test/@b?c=@d"\n').servers.size).toBe(1);
});

test("a rule file and a preset declare none", () => {
  const fault = ["f:1:2: a rule file holds rules only [wrong_source]"];
  expect(faultsOf(WHOLE.trim(), "user", { rulesOnly: true })).toEqual(fault);
  expect(faultsOf(WHOLE.trim(), "builtin")).toEqual(fault);
});

test("what the corporation declares holds and is locked", () => {
  const corp =
    '[mcp.servers.tracker]\nurl = "https://corp.test/"\n[mcp.servers.b]\nurl = "https://b.test/"\n';
  const { servers } = snapshotOf(`${WHOLE}${serverOf("", "c")}`, corp);
  expect(
    [...servers.values()].map(({ name, url, source, isLocked }) => [name, url, source, isLocked]),
  ).toEqual([
    ["b", "https://b.test/", "corp", true],
    ["c", "https://a.test/", "user", false],
    ["tracker", "https://corp.test/", "corp", true],
  ]);
});

test("a declaration is a part of the digest; who knows no header value comes to the same one", () => {
  const declared = layerOf("user", WHOLE);
  const digest = (layer: typeof declared) => compileSnapshot({ user: layer }, sha256).digest;
  const changed = [
    WHOLE.replace('mcp"', 'x"'),
    WHOLE.replace('"sse"', '"http"'),
    WHOLE.replace("modern", "legacy"),
    WHOLE.replace("false", "true"),
    WHOLE.replace("8443", "8444"),
    WHOLE.replace("X-Team", "X-Teams"),
    WHOLE.replace("20", "21"),
    WHOLE.replace("tracker]", "other]"),
    "",
  ].map((text) => digest(layerOf("user", text)));
  expect(new Set([digest(declared), ...changed]).size).toBe(changed.length + 1);
  const servers = new Map([...declared.servers].map(([name, server]) => [name, withoutHeaderValues(server)]));
  const sent = renderLayer({ ...declared, servers });
  expect(sent).toContain(`Authorization = "${HIDDEN_VALUE}"`);
  expect(sent).not.toContain("canary");
  expect(digest(layerOf("user", sent))).toBe(digest(declared));
});

test("the active policy shows servers with who said it, and no value of a header", () => {
  const text = renderActivePolicy(snapshotOf(WHOLE, serverOf("", "b")));
  expect(text).toContain("[mcp.servers.b] # corp, locked\n");
  expect(text).toContain("[mcp.servers.tracker] # user\n");
  expect(text).toContain('headers = { Authorization = "[redacted]", X-Team = "[redacted]" }');
  expect(text).not.toContain("canary");
});

const many = (count: number) => Array.from({ length: count }, (_, at) => serverOf("", `s${at}`)).join("");

test("64 servers are declared and 65 are not, also where two files share them", () => {
  expect(faultsOf(many(64))).toEqual([]);
  expect(faultsOf(many(65))).toEqual([expect.stringContaining("65 tool servers, limit 64 [too_large]")]);
  const put: PolicyEdit = { kind: "put_server", id: "mcp.servers.x", fields: { url: "https://x.test/" } };
  const user = layerOf("user", many(63));
  expect(applyEdits({ user, corp: emptyLayer("corp") }, [put]).kind).toBe("ok");
  const corp = layerOf("corp", serverOf("", "theirs"));
  expect(applyEdits({ user, corp }, [put])).toMatchObject({
    faults: [{ code: "too_large", message: "65 tool servers, with those of the corporation, limit 64" }],
  });
});

const corp = layerOf("corp", serverOf("", "theirs"));
const put = (fields: Readonly<Record<string, unknown>>, name = "a"): PolicyEdit => ({
  kind: "put_server",
  id: `mcp.servers.${name}`,
  fields,
});
const url = "https://a.test/";

test.each<[string, PolicyEdit, string]>([
  ["a server of the corporation", put({ url }, "theirs"), "locked"],
  ["its end", { kind: "delete_server", id: "mcp.servers.theirs" }, "locked"],
  ["the end of an unknown one", { kind: "delete_server", id: "mcp.servers.zz" }, "unknown_server"],
  ["one somewhere else", put({ url }, "a.b"), "bad_name"],
  ["one that is no server", { kind: "put_server", id: "limits.a", fields: { url } }, "bad_name"],
  ["a reserved name", put({ url }, "capsem"), "bad_name"],
  ["a name of JavaScript's", put({ url }, "__proto__"), "bad_name"],
  ["no address", put({}), "missing_key"],
  ["an address that is a list", put({ url: [url] }), "bad_value"],
  ["an unknown key", put({ url, command: "x" }), "legacy_key"],
  ["headers in a list", put({ url, headers: ["a"] }), "bad_value"],
  ["a header that is two lines", put({ url, headers: { "X-A": "a\nb" } }), "bad_value"],
  ["a header that is null", put({ url, headers: { "X-A": null } }), "bad_value"],
  ["a time that is no number", put({ url, timeout_secs: "5" }), "bad_value"],
])("%s is refused with its whole batch", (_, wrong, code) => {
  const good: PolicyEdit = put({ url }, "good");
  const made = applyEdits({ user: emptyLayer("user"), corp }, [good, wrong, good]);
  expect(made).toMatchObject({ kind: "refused", faults: [{ code }] });
});

function patched(text: string, ...edits: PolicyEdit[]): string {
  const result = patchLayerText(text, { corp }, edits);
  if (result.kind === "refused") throw new Error(JSON.stringify(result.faults));
  expect(result.value.keptComments).toBe(true);
  return result.value.text;
}

test.each<[string, string, PolicyEdit[], string]>([
  [
    "one more",
    "# mine\n[limits]\npool_size = 1\n",
    [put({ url, grants: ["10.0.0.1:80"], headers: { "X-A": "b" } })],
    '# mine\n[limits]\npool_size = 1\n\n[mcp.servers.a]\nurl = "https://a.test/"\ngrants = ["10.0.0.1:80"]\nheaders = { X-A = "b" }\n',
  ],
  [
    "one key of it",
    `# mine\n[mcp.servers.a] # ours\nurl = 'https://a.test/' # here\n# end\n`,
    [put({ url: "https://b.test/", enabled: false })],
    `# mine\n[mcp.servers.a] # ours\nurl = "https://b.test/" # here\nenabled = false\n# end\n`,
  ],
  [
    "a header in its table",
    `[mcp.servers.a]\nurl = 'https://a.test/'\n\n[mcp.servers.a.headers]\nX-A = 'b' # why\n`,
    [put({ url, headers: { "X-A": "b", "X-B": "c" } })],
    `[mcp.servers.a]\nurl = 'https://a.test/'\n\n[mcp.servers.a.headers]\nX-A = 'b' # why\nX-B = "c"\n`,
  ],
  [
    "a header less",
    `[mcp.servers.a]\nurl = 'https://a.test/' # here\nheaders = { X-A = "b", X-B = "c" }\n`,
    [put({ url, headers: { "X-B": "c" } })],
    `[mcp.servers.a]\nurl = 'https://a.test/' # here\nheaders = { X-B = "c" }\n`,
  ],
  [
    "one less, with what is about it",
    `# keep\n\n# about a\n[mcp.servers.a]\nurl = 'https://a.test/'\n[mcp.servers.a.headers]\nX-A = "b"\n\n[limits]\npool_size = 1\n`,
    [{ kind: "delete_server", id: "mcp.servers.a" }],
    "# keep\n\n[limits]\npool_size = 1\n",
  ],
  [
    "nothing that is said already",
    `[mcp.servers.a]\nurl = 'https://a.test/'\ntimeout_secs = 3_0\n`,
    [put({ url, timeout_secs: 30 })],
    `[mcp.servers.a]\nurl = 'https://a.test/'\ntimeout_secs = 3_0\n`,
  ],
])("the text changes by %s, and nothing else in it", (_, text, edits, expected) => {
  expect(patched(text, ...edits)).toBe(expected);
});

function randomFields(random: Random): Record<string, unknown> {
  const more: Record<string, readonly unknown[]> = {
    transport: ["auto", "http", "sse"],
    protocol: ["auto", "legacy", "modern"],
    enabled: [true, false],
    grants: [[], ["10.0.0.1:80"], ["[fd00::1]:443", "x.test:1"]],
    headers: [
      {},
      { "X-A": 'a "b" \\ # c' },
      { "X-B": "", Authorization: `Bearer credential:blake3:${"0".repeat(64)}` },
    ],
    timeout_secs: [1, 300],
  };
  const kept = Object.entries(more).filter(() => random.chance(2));
  const url = random.pick(["https://a.test/", "http://[::1]:8080/mcp?a=%20b", "https://b.test/'x'"]);
  return { url, ...Object.fromEntries(kept.map(([key, values]) => [key, random.pick(values)])) };
}

test("random edits: the text says what the edits say, and reading what is written gives the same", () => {
  const random = new Random(83);
  let text = "# first\n\n[limits]\npool_size = 1 # why\n";
  for (let round = 0; round < 150; round += 1) {
    const edits = Array.from({ length: 1 + random.below(3) }, (): PolicyEdit => {
      const id = `mcp.servers.${random.pick(["a", "b-c", "d_1"])}`;
      return random.chance(3)
        ? { kind: "delete_server", id }
        : { kind: "put_server", id, fields: randomFields(random) };
    });
    const before = layerOf("user", text);
    const wanted = applyEdits({ user: before, corp }, edits);
    const result = patchLayerText(text, { corp }, edits);
    expect(result.kind).toBe(wanted.kind);
    if (wanted.kind === "refused" || result.kind === "refused") continue;
    const said = (layer: typeof before) =>
      new Map([...layer.servers].map(([name, server]) => [name, { ...server, at: undefined }]));
    expect(said(result.value.layer)).toEqual(said(wanted.value));
    expect(said(layerOf("user", renderLayer(wanted.value)))).toEqual(said(wanted.value));
    expect(result.value.text.startsWith("# first\n\n[limits]\npool_size = 1 # why\n")).toBe(true);
    text = result.value.text;
  }
  expect(POLICY_LIMITS.serversMax).toBe(64);
});
