import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { usageError } from "../cli-error.ts";
import { jsonFormat } from "./mcp-json.ts";
import { tomlFormat } from "./mcp-toml.ts";

export const CLIENT_NAMES = ["claude", "codex", "gemini"] as const;
export type ClientName = (typeof CLIENT_NAMES)[number];
export const SCOPES = ["user", "project", "local"] as const;
export type Scope = (typeof SCOPES)[number];

export interface McpServerEntry {
  readonly command: string;
  readonly args: readonly string[];
}

/** How a file is changed: the text with the entry, and without it. Null is a file that does not exist. */
export interface ConfigFormat {
  set(text: string | null, keys: readonly string[], entry: McpServerEntry): string;
  remove(text: string | null, keys: readonly string[]): string | null;
}

export interface ClientPlace {
  readonly path: string;
  /** Where in the file the entry is. */
  readonly keys: readonly string[];
  readonly format: ConfigFormat;
}

type Env = Readonly<Record<string, string | undefined>>;

/**
 * Where each client keeps its servers: Claude Code in ~/.claude.json (its `mcpServers` for all projects, or those of one)
 * and a project's .mcp.json, Codex in config.toml, Gemini CLI in settings.json, which may have comments.
 */
export function clientPlace(env: Env, client: ClientName, scope: Scope): ClientPlace {
  const home = homedir();
  if (scope === "local" && client !== "claude")
    throw usageError(`Cannot use --scope local: ${client} has user and project`);
  switch (client) {
    case "claude": {
      const format = jsonFormat({ extra: { type: "stdio" }, allowsComments: false });
      if (scope === "project") return { path: resolve(".mcp.json"), keys: ["mcpServers", "capsem"], format };
      const path = join(folderOf(env, "CLAUDE_CONFIG_DIR") ?? home, ".claude.json");
      const keys = ["mcpServers", "capsem"];
      return { path, keys: scope === "local" ? ["projects", resolve("."), ...keys] : keys, format };
    }
    case "codex": {
      const folder =
        scope === "project" ? resolve(".codex") : (folderOf(env, "CODEX_HOME") ?? join(home, ".codex"));
      return { path: join(folder, "config.toml"), keys: ["mcp_servers", "capsem"], format: tomlFormat };
    }
    case "gemini": {
      const folder = scope === "project" ? resolve(".") : home;
      const format = jsonFormat({ extra: {}, allowsComments: true });
      return { path: join(folder, ".gemini", "settings.json"), keys: ["mcpServers", "capsem"], format };
    }
  }
}

function folderOf(env: Env, name: string): string | null {
  const value = env[name];
  return value === undefined || value === "" ? null : resolve(value);
}
