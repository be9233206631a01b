import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, test } from "vitest";
import { type Agent, PROMPT, proveInstalled, proveOnTheWire } from "./agent.ts";
import type { ClientHome } from "./clients.ts";
import { skipUnless } from "./skip.ts";
import { openVmStage, type Stage } from "./stage.ts";

const codexConfig = (home: ClientHome) => join(home.path, ".codex", "config.toml");
const geminiSettings = (home: ClientHome) => join(home.path, ".gemini", "settings.json");

const CODEX: Agent = {
  name: "codex",
  prefix: "mcp__capsem__",
  client: "codex-mcp-client 0.171.0",
  revision: "2025-06-18",
  prepare: (home, modelUrl) => {
    const lines = [
      'model = "stub"',
      'model_provider = "stub"',
      "[model_providers.stub]",
      'name = "stub"',
      `base_url = ${JSON.stringify(`${modelUrl}/v1`)}`,
      'wire_api = "responses"',
      'env_key = "STUB_KEY"',
    ];
    mkdirSync(join(home.path, ".codex"), { recursive: true });
    writeFileSync(codexConfig(home), `${lines.join("\n")}\n`);
    return {
      // The VM is the sandbox: what runs here is only the stub's one tool call.
      args: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", PROMPT],
      env: { STUB_KEY: "no-account" },
    };
  },
  configure: (home, { command, args }) => {
    const entry = `command = ${JSON.stringify(command)}\nargs = ${JSON.stringify(args)}\n`;
    appendFileSync(codexConfig(home), `[mcp_servers.capsem]\n${entry}`);
    return [];
  },
};

const GEMINI: Agent = {
  name: "gemini",
  prefix: "mcp_capsem_",
  client: "gemini-cli-mcp-client 0.61.0",
  revision: "2025-06-18",
  prepare: (home, modelUrl) => {
    mkdirSync(join(home.path, ".gemini"), { recursive: true });
    const settings = { security: { auth: { selectedType: "gemini-api-key" } } };
    writeFileSync(geminiSettings(home), JSON.stringify(settings));
    return {
      args: ["-p", PROMPT, "--approval-mode", "yolo", "-m", "gemini-2.5-flash", "--output-format", "json"],
      env: {
        GEMINI_API_KEY: "no-account",
        GOOGLE_GEMINI_BASE_URL: modelUrl,
        GEMINI_CLI_TRUST_WORKSPACE: "true",
      },
    };
  },
  configure: (home, { command, args }) => {
    const settings = JSON.parse(readFileSync(geminiSettings(home), "utf8")) as object;
    const mcpServers = { capsem: { command, args, trust: true } };
    writeFileSync(geminiSettings(home), JSON.stringify({ ...settings, mcpServers }));
    return [];
  },
};

describe.each([
  ["Codex", CODEX],
  ["Gemini CLI", GEMINI],
] as const)("%s", skipUnless("codex", "gemini"), (_name, agent) => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openVmStage();
  });
  afterAll(() => stage?.close());

  test("runs a command in a real VM with capsem_run", () => proveOnTheWire(stage, agent));

  test("does so after nothing but capsem mcp install", () => proveInstalled(stage, agent));
});
