import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type CliRunner, createCliRunner } from "./testing/cli-runner.ts";

const TOKEN = "SecretGatewayToken";
let cli: CliRunner;
let home: string;
const project = () => join(home, "project");

beforeAll(async () => {
  cli = await createCliRunner();
  writeFileSync(join(cli.folder, "mcp.cjs"), "");
});
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "cli-mcp-"));
  mkdirSync(project());
  mkdirSync(join(home, ".capsem", "run"), { recursive: true });
  writeFileSync(join(home, ".capsem", "run", "gateway.token"), TOKEN);
});
afterAll(() => cli.close());

const run = async (args: string, env: Record<string, string> = {}) => {
  const ran = await cli.run(["mcp", ...args.split(" ")], {
    env: { HOME: home, CAPSEM_HOME: join(home, ".capsem"), ...env },
    cwd: project(),
  });
  return ran;
};
const readJson = (path: string) =>
  JSON.parse(readFileSync(join(home, path), "utf8")) as Record<string, unknown>;
const entry = (port = 19_222) => ({
  command: process.execPath,
  args: [
    join(cli.folder, "mcp.cjs"),
    "--gateway-url",
    `http://127.0.0.1:${port}`,
    "--token-file",
    join(home, ".capsem", "run", "gateway.token"),
  ],
});

describe("capsem mcp install", () => {
  it.each([
    ["claude", "user", ".claude.json"],
    ["claude", "project", "project/.mcp.json"],
    ["gemini", "user", ".gemini/settings.json"],
    ["gemini", "project", "project/.gemini/settings.json"],
  ])("writes the file of %s for %s, once, without the token", async (client, scope, path) => {
    const first = await run(`install ${client} --scope ${scope}`);
    expect(first).toMatchObject({ code: 0, stdout: `configured: capsem in ${join(home, path)}\n` });
    const type = client === "claude" ? { type: "stdio" } : {};
    expect(readJson(path)).toEqual({ mcpServers: { capsem: { ...type, ...entry() } } });
    const text = readFileSync(join(home, path), "utf8");
    expect(text).not.toContain(TOKEN);
    expect(statSync(join(home, path)).mode & 0o777).toBe(0o600);
    const again = await run(`install ${client} --scope ${scope}`);
    expect(again.stdout).toBe(`already configured: capsem in ${join(home, path)}\n`);
    expect(readFileSync(join(home, path), "utf8")).toBe(text);
    expect((await run(`uninstall ${client} --scope ${scope}`)).code).toBe(0);
    expect(readJson(path)).toEqual({ mcpServers: {} });
  });

  it.each([
    ["cursor", "user", ".cursor/mcp.json", "mcpServers"],
    ["cursor", "project", "project/.cursor/mcp.json", "mcpServers"],
    ["vscode", "user", ".config/Code/User/mcp.json", "servers"],
    ["vscode", "project", "project/.vscode/mcp.json", "servers"],
  ])(
    "writes the file of the editor %s for %s, and leaves the rest of it",
    async (client, scope, path, key) => {
      mkdirSync(join(home, path, ".."), { recursive: true });
      const before = `{\n  "${key}": {\n    "other": { "url": "x" }\n  }\n}\n`;
      writeFileSync(join(home, path), before);
      const place = join(home, path);
      const words = `${client} --scope ${scope}`;
      expect(await run(`install ${words}`)).toMatchObject({
        code: 0,
        stdout: `configured: capsem in ${place}\n`,
      });
      expect(readJson(path)).toEqual({
        [key]: { other: { url: "x" }, capsem: { type: "stdio", ...entry() } },
      });
      expect((await run(`install ${words}`)).stdout).toBe(`already configured: capsem in ${place}\n`);
      expect((await run(`uninstall ${words}`)).code).toBe(0);
      expect(readFileSync(place, "utf8")).toBe(before);
    },
  );

  it("keeps the comments of VS Code's file, and refuses what Cursor would not read", async () => {
    mkdirSync(join(project(), ".vscode"));
    mkdirSync(join(project(), ".cursor"));
    const text = '{\n  // mine\n  "servers": {}\n}\n';
    for (const folder of [".vscode", ".cursor"]) writeFileSync(join(project(), folder, "mcp.json"), text);
    expect((await run("install vscode --scope project")).code).toBe(0);
    expect(readFileSync(join(project(), ".vscode/mcp.json"), "utf8")).toContain("// mine\n");
    expect((await run("install cursor --scope project")).stderr).toMatch(/it is not JSON, line 2: a comment/);
    expect(readFileSync(join(project(), ".cursor/mcp.json"), "utf8")).toBe(text);
    expect((await run("install vscode --scope local")).code).toBe(2);
  });

  it("writes VS Code's file where XDG_CONFIG_HOME points", async () => {
    const env = { XDG_CONFIG_HOME: join(home, "xdg") };
    expect((await run("install vscode", env)).code).toBe(0);
    expect(readJson("xdg/Code/User/mcp.json")).toHaveProperty("servers.capsem");
  });

  it("writes Claude's entry for one project where Claude looks for it", async () => {
    writeFileSync(
      join(home, ".claude.json"),
      JSON.stringify({ projects: { [project()]: { allowedTools: [] } } }),
    );
    expect((await run("install claude --scope local")).code).toBe(0);
    expect(readJson(".claude.json")).toEqual({
      projects: {
        [project()]: { allowedTools: [], mcpServers: { capsem: { type: "stdio", ...entry() } } },
      },
    });
  });

  it("writes a table into Codex's file", async () => {
    mkdirSync(join(home, ".codex"));
    writeFileSync(join(home, ".codex/config.toml"), "# mine\nmodel = 'x'\n");
    expect((await run("install codex")).code).toBe(0);
    const text = readFileSync(join(home, ".codex/config.toml"), "utf8");
    expect(text).toMatch(/^# mine\nmodel = 'x'\n\n\[mcp_servers\.capsem\]\n/);
    expect(text).toContain(`command = ${JSON.stringify(process.execPath)}\n`);
    expect((await run("uninstall codex")).code).toBe(0);
    expect(readFileSync(join(home, ".codex/config.toml"), "utf8")).toBe("# mine\nmodel = 'x'\n");
  });

  it("goes where a client was told to keep its files", async () => {
    const elsewhere = join(home, "elsewhere");
    await run("install claude", { CLAUDE_CONFIG_DIR: elsewhere });
    await run("install codex", { CODEX_HOME: elsewhere });
    expect(readdirSync(elsewhere).sort()).toEqual([".claude.json", "config.toml"]);
  });

  it("takes the port of the gateway that ran last, or what it is told", async () => {
    writeFileSync(join(home, ".capsem/run/gateway.port"), "4321\n");
    const { stdout } = await run("install --print");
    expect(JSON.parse(stdout)).toEqual({ mcpServers: { capsem: entry(4321) } });
    const told = await run("install --print --gateway-url https://vm.example --token-file t");
    expect(JSON.parse(told.stdout)).toMatchObject({
      mcpServers: { capsem: { args: expect.arrayContaining(["https://vm.example", join(project(), "t")]) } },
    });
    expect(readdirSync(home).sort()).toEqual([".capsem", "project"]);
  });

  it("takes the port that was chosen where no gateway runs", async () => {
    writeFileSync(join(home, ".capsem/gateway-port"), "19333\n");
    expect(JSON.parse((await run("install --print")).stdout)).toEqual({
      mcpServers: { capsem: entry(19_333) },
    });
    writeFileSync(join(home, ".capsem/run/gateway.port"), "4321\n");
    expect(JSON.parse((await run("install --print")).stdout)).toEqual({
      mcpServers: { capsem: entry(4321) },
    });
  });

  it("says that a token file is not there, and only of its own that the gateway makes it", async () => {
    const none = join(home, "nonexist");
    expect((await run(`install claude --token-file ${none}`)).stderr).toBe(
      `capsem: the token file ${JSON.stringify(none)} is not there\n`,
    );
    rmSync(join(home, ".capsem/run/gateway.token"));
    const own = join(home, ".capsem/run/gateway.token");
    expect((await run(`install claude --token-file ${own}`)).stderr).toContain(
      "capsem gateway start makes it",
    );
  });

  it("names the clients that it knows where it takes capsem out", async () => {
    const known = "the known clients are claude, codex, gemini, cursor, vscode";
    expect(await run("uninstall foo")).toMatchObject({
      ...{ code: 2, stderr: `capsem: Cannot take capsem out of "foo": ${known}\n` },
    });
    expect((await run("uninstall cluade")).stderr).toContain("did you mean claude?");
  });

  it("refuses a broken file and leaves it as it is", async () => {
    for (const [client, path, text] of [
      ["claude", ".claude.json", '{"a": 1,\n'],
      ["gemini", ".gemini/settings.json", '{"mcpServers": 5}'],
      ["codex", ".codex/config.toml", "[a\n"],
    ] as const) {
      mkdirSync(join(home, path, ".."), { recursive: true });
      writeFileSync(join(home, path), text);
      const { code, stderr } = await run(`install ${client}`);
      expect(code).toBe(1);
      expect(stderr).toMatch(/^capsem: Cannot change "[^"]+": [^\n]+\n$/);
      expect(readFileSync(join(home, path), "utf8")).toBe(text);
      expect(readdirSync(join(home, path, "..")).filter((name) => name.includes(".tmp"))).toEqual([]);
    }
  });

  it("keeps the mode of a file, and a link a link", async () => {
    writeFileSync(join(home, "real.json"), "{}");
    chmodSync(join(home, "real.json"), 0o640);
    symlinkSync("real.json", join(home, ".claude.json"));
    expect((await run("install claude")).code).toBe(0);
    expect(lstatSync(join(home, ".claude.json")).isSymbolicLink()).toBe(true);
    expect(statSync(join(home, "real.json")).mode & 0o777).toBe(0o640);
    expect(readJson("real.json")).toHaveProperty("mcpServers.capsem");
  });

  it("says when the gateway never ran, and refuses clients and scopes that it does not know", async () => {
    rmSync(join(home, ".capsem/run/gateway.token"));
    expect((await run("install claude")).stderr).toContain("capsem gateway start");
    expect(await run("install windsurf")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("--print"),
    });
    expect((await run("install codex --scope local")).code).toBe(2);
    expect((await run("install claude --gateway-url http://u:p@x")).code).toBe(2);
    expect((await run("install claude --json")).stdout).toContain('"changed":false');
    expect(existsSync(join(home, ".codex"))).toBe(false);
  });
});
