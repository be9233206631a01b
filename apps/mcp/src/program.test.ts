import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { TOOLS } from "@capsem/api";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LINE_BYTES_MAX } from "./limits.ts";
import { type Program, packProgram, Session } from "./testing/program.ts";
import { listTools } from "./tool-list.ts";
import { VERSION } from "./version.ts";

const GATEWAY = "http://127.0.0.1:9";
const SECRET = "Sup3rSecretValue";
const root = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const modern = (method: string, params: Record<string, unknown> = {}) => ({
  method,
  params: {
    ...params,
    _meta: {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
      "io.modelcontextprotocol/clientCapabilities": {},
    },
  },
});

let program: Program;
const sessions: Session[] = [];
const start = (
  args: readonly string[] = ["--gateway-url", GATEWAY],
  env = { CAPSEM_GATEWAY_TOKEN: SECRET },
) => {
  const session = new Session(program.path, args, env);
  sessions.push(session);
  return session;
};
const namesOf = (answer: Record<string, unknown>) =>
  (answer.result as { tools: { name: string }[] }).tools.map(({ name }) => name);

beforeAll(() => {
  program = packProgram();
}, 120_000);
afterAll(() => {
  for (const { child } of sessions) child.kill("SIGKILL");
  program.close();
});

describe("capsem-mcp as a program", () => {
  it("has the version of the project", () => {
    const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
    expect(VERSION).toBe(manifest.version);
  });

  it("lists exactly the declared tools, each with a description, an input and an output schema", async () => {
    const session = start();
    const hello = await session.initialize();
    expect(hello.result).toMatchObject({
      protocolVersion: "2025-11-25",
      serverInfo: { name: "capsem", version: VERSION },
      capabilities: { tools: {} },
    });
    const answer = await session.request(1, "tools/list");
    expect(namesOf(answer).sort()).toEqual(Object.keys(TOOLS).sort());
    // The bundle has the list as text, made when it was built.
    expect((answer.result as { tools: unknown }).tools).toEqual(JSON.parse(JSON.stringify(listTools())));
    for (const tool of (answer.result as { tools: Record<string, unknown>[] }).tools) {
      expect(tool.description).toBeTypeOf("string");
      expect(tool.inputSchema).toMatchObject({ type: "object", additionalProperties: false });
      expect(tool.outputSchema).toMatchObject({ type: "object" });
      expect(JSON.stringify(tool.outputSchema)).not.toContain('additionalProperties":false');
      expect(tool.annotations).toMatchObject({ readOnlyHint: expect.any(Boolean) });
    }
    expect(await session.end()).toMatchObject({ code: 0, stderr: "" });
  });

  it.each(["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])(
    "speaks %s by handshake",
    async (revision) => {
      const session = start();
      expect((await session.initialize(revision)).result).toMatchObject({ protocolVersion: revision });
      expect(namesOf(await session.request(2, "tools/list"))).toContain("capsem_run");
      expect((await session.request(3, "ping")).result).toEqual({});
    },
  );

  it("speaks 2026-07-28 without a handshake", async () => {
    const session = start();
    session.send({ id: 1, ...modern("server/discover") });
    const hello = await session.next(({ id }) => id === 1);
    expect(hello.result).toMatchObject({ supportedVersions: ["2026-07-28"], resultType: "complete" });
    session.send({ id: 2, ...modern("tools/list") });
    const list = await session.next(({ id }) => id === 2);
    expect(namesOf(list)).toContain("capsem_exec");
    expect(list.result).toMatchObject({ cacheScope: "public" });
    session.send({ id: 3, ...modern("tools/call", { name: "capsem_info", arguments: {} }) });
    const called = await session.next(({ id }) => id === 3);
    expect(called.result).toMatchObject({ isError: true, resultType: "complete" });
    expect((await session.end()).code).toBe(0);
  });

  it("still takes initialize after server/discover in the same process", async () => {
    const session = start();
    session.send({ id: 1, ...modern("server/discover") });
    await session.next(({ id }) => id === 1);
    expect((await session.initialize()).result).toMatchObject({ protocolVersion: "2025-11-25" });
    expect(namesOf(await session.request(2, "tools/list"))).toContain("capsem_exec");
  });

  it("answers server/discover of an unknown revision and lives on", async () => {
    const session = start();
    const { params } = modern("server/discover");
    const meta = { ...params._meta, "io.modelcontextprotocol/protocolVersion": "2031-01-01" };
    session.send({ id: 1, method: "server/discover", params: { _meta: meta } });
    expect(await session.next(({ id }) => id === 1)).toMatchObject({ error: { code: -32022 } });
    expect((await session.initialize()).result).toBeDefined();
  });

  it.each([0, "", "text", Number.MAX_SAFE_INTEGER, -1])("answers under the request id %j", async (id) => {
    const session = start();
    await session.initialize();
    expect(namesOf(await session.request(id, "tools/list"))).toContain("capsem_list");
  });

  it("says no to an unknown tool by an error of the protocol", async () => {
    const session = start();
    await session.initialize();
    for (const name of ["capsem_version", "constructor", "__proto__"])
      expect(await session.request(name, "tools/call", { name })).toMatchObject({ error: { code: -32602 } });
  });
});

describe("the end of capsem-mcp", () => {
  it("comes at once with the end of input, after what needs no gateway is answered", async () => {
    const session = start();
    session.send({
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
    });
    session.send({ id: 2, method: "tools/list" });
    const { code, stdout } = await session.end();
    expect(code).toBe(0);
    expect(stdout.trim().split("\n")).toHaveLength(2);
  });

  it("comes with the end of input while a call is under way", async () => {
    const hanging = await hangingGateway();
    const session = start(["--gateway-url", hanging.url]);
    await session.initialize();
    session.send({ id: 1, method: "tools/call", params: { name: "capsem_list" } });
    await hanging.asked;
    expect(await session.end()).toMatchObject({ code: 0, stderr: "" });
    hanging.server.closeAllConnections();
    hanging.server.close();
  });

  it.each(["SIGINT", "SIGTERM"] as const)("comes cleanly with %s", async (signal) => {
    const session = start();
    await session.initialize();
    session.child.kill(signal);
    expect(await session.ended).toMatchObject({ code: 0, signal: null, stderr: "" });
  });

  it("comes quietly when nobody reads its answers any more", async () => {
    const session = start();
    await session.initialize();
    session.child.stdout?.destroy();
    for (let id = 1; id <= 3; id += 1) session.send({ id, method: "tools/list" });
    expect(await session.ended).toMatchObject({ code: 0, stderr: "" });
  });
});

describe("stdin of capsem-mcp", () => {
  it.each<[string, string | Uint8Array, number]>([
    ["truncated JSON", '{"jsonrpc":"2.0","id":1,"meth\n', -32700],
    ["invalid UTF-8", Buffer.from('{"jsonrpc":"2.0","id":1,"method":"ping\xff"}\n', "latin1"), -32700],
    ["a batch", '[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', -32600],
    ["a number", "5\n", -32600],
    ["another version", '{"jsonrpc":"1.0","id":7,"method":"ping"}\n', -32600],
    ["an id that is no number JavaScript can hold", '{"jsonrpc":"2.0","id":1e300,"method":"ping"}\n', -32600],
    ["params that are a list", '{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}\n', -32600],
  ])("answers %s with an error and lives on", async (_, line, code) => {
    const session = start();
    await session.initialize();
    session.write(line);
    expect(await session.next(({ error }) => error !== undefined)).toMatchObject({ error: { code } });
    expect((await session.request("after", "ping")).result).toEqual({});
  });

  it("skips a line that is too long and lives on", async () => {
    const session = start();
    await session.initialize();
    const part = Buffer.alloc(1024 * 1024, "x");
    for (let sent = 0; sent <= LINE_BYTES_MAX; sent += part.length) session.write(part);
    session.write("\n");
    expect(await session.next(({ error }) => error !== undefined)).toMatchObject({
      id: null,
      error: { code: -32600 },
    });
    expect((await session.request("after", "ping")).result).toEqual({});
  });

  it("survives seeded nonsense without a word on stderr or a byte that is no message", async () => {
    const session = start();
    await session.initialize();
    const random = seeded(20_260_728);
    const good = [
      '{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{}}',
      '{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"capsem_info","arguments":{"vm_id":"x"}}}',
      '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}',
      '{"jsonrpc":"2.0","id":9,"result":{}}',
    ];
    for (let round = 0; round < 400; round += 1) {
      const line = Buffer.from(good[Math.floor(random() * good.length)] ?? "");
      for (let edits = Math.floor(random() * 4); edits >= 0; edits -= 1)
        line[Math.floor(random() * line.length)] = Math.floor(random() * 256);
      const cut = random() < 0.2 ? line.subarray(0, Math.floor(random() * line.length)) : line;
      session.write(Buffer.concat([cut, Buffer.from("\n")]));
    }
    expect((await session.request("after", "ping")).result).toEqual({});
    expect(await session.end()).toMatchObject({ code: 0, stderr: "" });
  });
});

describe("the start of capsem-mcp", () => {
  const folder = mkdtempSync(join(tmpdir(), "capsem-mcp-token-"));
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const url = ["--gateway-url", GATEWAY];

  it.each<[string, readonly string[], Record<string, string>, string]>([
    ["no token", url, {}, "--token-file"],
    ["an empty token in the environment", url, { CAPSEM_GATEWAY_TOKEN: " " }, "CAPSEM_GATEWAY_TOKEN"],
    [
      "a token with a line's end inside",
      url,
      { CAPSEM_GATEWAY_TOKEN: `${SECRET}\nx` },
      "CAPSEM_GATEWAY_TOKEN",
    ],
    ["a token file that is missing", [...url, "--token-file", join(folder, SECRET)], {}, "does not exist"],
    ["a token file that is a folder", [...url, "--token-file", folder], {}, "folder"],
    ["an empty token file", [...url, "--token-file", file("empty", "\n")], {}, "empty"],
    ["a token file with other things", [...url, "--token-file", file("other", `${SECRET} x`)], {}, "letters"],
    ["--token", [...url, "--token", SECRET], {}, "--token"],
    ["--token=", [...url, `--token=${SECRET}`], {}, "--token"],
    ["an unknown option", [...url, `--tokn=${SECRET}`], {}, "--tokn"],
    ["a word that is no option", [...url, SECRET], {}, "unknown word"],
    ["a short option with a value in it", [...url, `-t${SECRET}`], {}, "unknown word"],
    ["no gateway", [], {}, "--gateway-url"],
    ["a gateway that is no URL", ["--gateway-url", SECRET], {}, "no URL"],
    ["a gateway with a password", ["--gateway-url", `http://u:${SECRET}@127.0.0.1`], {}, "password"],
    ["another protocol", ["--gateway-url", `ftp://${SECRET}`], {}, "http or https"],
    ["http that leaves the machine", ["--gateway-url", `http://${SECRET}.example`], {}, "https"],
    ["a time that is no number", [...url, "--timeout-ms", `${SECRET}`], {}, "--timeout-ms"],
    ["a time of nothing", [...url, "--timeout-ms", "0"], {}, "--timeout-ms"],
    ["an option without its value", ["--gateway-url"], {}, "missing"],
    ["an option twice", [...url, ...url], {}, "twice"],
  ])("is refused with %s, in one line that repeats no value", async (_, args, env, names) => {
    const session = start(args, env as { CAPSEM_GATEWAY_TOKEN: string });
    const { code, stdout, stderr } = await session.end();
    expect(code).toBe(2);
    expect(stdout).toBe("");
    expect(stderr).toMatch(/^capsem-mcp: Cannot [^\n]+\n$/);
    expect(stderr).toContain(names);
    expect(stderr).not.toContain(SECRET);
  });

  it("shows its help and its version", () => {
    const run = (option: string) =>
      execFileSync(process.execPath, [program.path, option], { encoding: "utf8" });
    for (const option of ["--gateway-url", "--token-file", "--timeout-ms"])
      expect(run("--help")).toContain(option);
    expect(run("--version")).toBe(`${VERSION}\n`);
  });

  it("does not use a code cache that is not of its bundle", async () => {
    const copy = join(program.folder, "copy");
    mkdirSync(copy);
    const from = (name: string) => readFileSync(join(program.folder, "package", name));
    writeFileSync(join(copy, "mcp.cjs"), from("mcp.cjs"));
    writeFileSync(join(copy, "mcp-server.cache"), from("mcp-server.cache"));
    // The same length, another text: V8 alone would run the old code.
    const changed = from("mcp-server.cjs").toString("utf8").replaceAll(`"${VERSION}"`, '"9.9.9"');
    const digest = changed.slice(2, 66);
    writeFileSync(join(copy, "mcp-server.cjs"), changed.replace(digest, digest.split("").reverse().join("")));
    const session = new Session(join(copy, "mcp.cjs"), ["--gateway-url", GATEWAY], {
      CAPSEM_GATEWAY_TOKEN: SECRET,
    });
    sessions.push(session);
    expect((await session.initialize()).result).toMatchObject({ serverInfo: { version: "9.9.9" } });
  });
});

describe("the npm package", () => {
  it("installs offline without scripts, and serves", async () => {
    const packed = execFileSync(
      "npm",
      ["pack", "--json", "--ignore-scripts", join(program.folder, "package")],
      {
        cwd: program.folder,
        encoding: "utf8",
      },
    );
    const [{ filename }] = JSON.parse(packed) as [{ filename: string }];
    const place = join(program.folder, "place");
    mkdirSync(place);
    writeFileSync(join(place, "package.json"), "{}");
    execFileSync(
      "npm",
      ["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", join(program.folder, filename)],
      { cwd: place, stdio: "pipe" },
    );
    const session = new Session(join(place, "node_modules/.bin/capsem-mcp"), ["--gateway-url", GATEWAY], {
      CAPSEM_GATEWAY_TOKEN: SECRET,
    });
    sessions.push(session);
    await session.initialize();
    expect(namesOf(await session.request(1, "tools/list")).sort()).toEqual(Object.keys(TOOLS).sort());
    expect((await session.end()).code).toBe(0);
  }, 60_000);
});

async function hangingGateway() {
  let ask: () => void = () => undefined;
  const asked = new Promise<void>((done) => {
    ask = done;
  });
  const server: Server = createServer(() => ask());
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return { url: `http://127.0.0.1:${port}`, asked, server };
}

/** The same numbers for the same seed (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let word = Math.imul(state ^ (state >>> 15), 1 | state);
    word = (word + Math.imul(word ^ (word >>> 7), 61 | word)) ^ word;
    return ((word ^ (word >>> 14)) >>> 0) / 4_294_967_296;
  };
}
