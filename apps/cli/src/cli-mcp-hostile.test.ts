import { execFileSync } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { jsonFormat } from "./command/mcp-json.ts";
import { tomlFormat } from "./command/mcp-toml.ts";
import { type CliRunner, createCliRunner } from "./testing/cli-runner.ts";

let cli: CliRunner;
let home: string;
const project = () => join(home, "project");

beforeAll(async () => {
  cli = await createCliRunner();
  writeFileSync(join(cli.folder, "mcp.cjs"), "");
});
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "cli-mcp-hostile-"));
  mkdirSync(project());
});
afterEach(() => rmSync(home, { recursive: true, force: true }));
afterAll(() => cli.close());

const install = (...args: string[]) =>
  cli.run(["mcp", "install", ...args], {
    env: { HOME: home, CAPSEM_HOME: join(home, ".capsem") },
    cwd: project(),
  });

describe("a project that is somebody else's", () => {
  const victim = () => join(home, "private.json");
  const before = '{"a":1}';
  beforeEach(() => writeFileSync(victim(), before));

  it.each([
    ["claude", ".mcp.json"],
    ["gemini", ".gemini/settings.json"],
    ["codex", ".codex/config.toml"],
  ])("cannot lead the change for %s to another file by a link", async (client, path) => {
    if (path.includes("/")) mkdirSync(join(project(), path, ".."));
    symlinkSync(victim(), join(project(), path));
    const refused = await install(client, "--scope", "project");
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("it is a link");
    expect(readFileSync(victim(), "utf8")).toBe(before);
  });

  it("nor by a link in the place of a folder", async () => {
    mkdirSync(join(home, ".gemini"));
    const settings = join(home, ".gemini", "settings.json");
    writeFileSync(settings, before);
    symlinkSync(join(home, ".gemini"), join(project(), ".gemini"));
    const refused = await install("gemini", "--scope", "project");
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("is a link");
    expect(readFileSync(settings, "utf8")).toBe(before);
  });

  it("while the user's own link leads where it did", async () => {
    symlinkSync(victim(), join(home, ".claude.json"));
    expect((await install("claude")).code).toBe(0);
    expect(JSON.parse(readFileSync(victim(), "utf8"))).toMatchObject({ a: 1, mcpServers: { capsem: {} } });
  });
});

describe("a configuration that is no plain file", () => {
  it.each(["user", "project"])("is refused and not waited for, scope %s", async (scope) => {
    const path = scope === "user" ? join(home, ".claude.json") : join(project(), ".mcp.json");
    execFileSync("mkfifo", [path]);
    const refused = await install("claude", "--scope", scope);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("it is no plain file");
  });

  it("or is far too large is refused by its size", async () => {
    const path = join(home, ".claude.json");
    writeFileSync(path, "{}");
    truncateSync(path, 30 * 1024 * 1024);
    const refused = await install("claude");
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("it is over 8 MiB");
  });
});

it("a long string is no more to the readers than a short one", () => {
  const entry = { command: "/node", args: [] };
  const long = "\\n".repeat(15_000_000);
  const json = jsonFormat({ extra: {}, allowsComments: false });
  const text = json.set(`{"a":"${long}"}`, ["mcpServers", "capsem"], entry);
  expect(text?.length).toBeGreaterThan(long.length);
  expect(() => tomlFormat.set(`"${long}" = 1`, ["mcp_servers", "capsem"], entry)).toThrow(/not TOML, line 1/);
});

describe("--gateway-url", () => {
  it.each(["http://127.evil.example:1", "http://192.168.1.2:1", "http://localhost.evil.example"])(
    "over http to another machine is refused: %s",
    async (url) => {
      const refused = await install("claude", "--print", "--gateway-url", url);
      expect(refused).toMatchObject({ code: 2, stdout: "" });
      expect(refused.stderr).toContain("use https");
    },
  );

  it.each([
    ["http://localhost:19222", "http://127.0.0.1:19222"],
    ["http://LOCALHOST:1/x", "http://127.0.0.1:1/x"],
    ["http://127.0.0.1:7", "http://127.0.0.1:7"],
    ["https://localhost:7", "https://localhost:7"],
    ["https://capsem.example", "https://capsem.example"],
  ])("%s is written as %s", async (url, written) => {
    expect((await install("--print", "--gateway-url", url)).stdout).toContain(`"${written}"`);
  });
});
