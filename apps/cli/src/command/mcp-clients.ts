import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { usageError } from "../cli-error.ts";
import { jsonFormat } from "./mcp-json.ts";
import { tomlFormat } from "./mcp-toml.ts";

export const CLIENT_NAMES = ["claude", "codex", "gemini", "cursor", "vscode"] as const;
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
  /** A project's folder: what is in it may be somebody else's, and no link in it is followed. Null: the user's own. */
  readonly root: string | null;
  /** Where in the file the entry is. */
  readonly keys: readonly string[];
  readonly format: ConfigFormat;
}

type Env = Readonly<Record<string, string | undefined>>;

/**
 * Where each client keeps its servers: Claude Code in ~/.claude.json (its `mcpServers` for all projects, or those of one)
 * and a project's .mcp.json, Codex in config.toml, Gemini CLI in settings.json, which may have comments, Cursor in
 * .cursor/mcp.json, VS Code in .vscode/mcp.json and in mcp.json of the user's default profile, both with comments.
 */
export function clientPlace(env: Env, client: ClientName, scope: Scope): ClientPlace {
  const home = homedir();
  const root = scope === "project" ? resolve(".") : null;
  if (scope === "local" && client !== "claude")
    throw usageError(`Cannot use --scope local: ${client} has user and project`);
  switch (client) {
    case "claude": {
      const format = jsonFormat({ extra: { type: "stdio" }, allowsComments: false });
      if (scope === "project")
        return { path: resolve(".mcp.json"), root, keys: ["mcpServers", "capsem"], format };
      const path = join(folderOf(env, "CLAUDE_CONFIG_DIR") ?? home, ".claude.json");
      const keys = ["mcpServers", "capsem"];
      return { path, root, keys: scope === "local" ? ["projects", resolve("."), ...keys] : keys, format };
    }
    case "codex": {
      const folder =
        scope === "project" ? resolve(".codex") : (folderOf(env, "CODEX_HOME") ?? join(home, ".codex"));
      return { path: join(folder, "config.toml"), root, keys: ["mcp_servers", "capsem"], format: tomlFormat };
    }
    case "gemini": {
      const folder = scope === "project" ? resolve(".") : home;
      const format = jsonFormat({ extra: {}, allowsComments: true });
      return { path: join(folder, ".gemini", "settings.json"), root, keys: ["mcpServers", "capsem"], format };
    }
    case "cursor": {
      const folder = scope === "project" ? resolve(".") : home;
      const format = jsonFormat({ extra: { type: "stdio" }, allowsComments: false });
      return { path: join(folder, ".cursor", "mcp.json"), root, keys: ["mcpServers", "capsem"], format };
    }
    case "vscode": {
      const folder = scope === "project" ? resolve(".vscode") : vscodeFolder(env, home);
      const format = jsonFormat({ extra: { type: "stdio" }, allowsComments: true });
      return { path: join(folder, "mcp.json"), root, keys: ["servers", "capsem"], format };
    }
  }
}

/** Of the default profile; another one has a folder whose name only VS Code knows. */
function vscodeFolder(env: Env, home: string): string {
  const settings =
    process.platform === "darwin"
      ? join(home, "Library", "Application Support")
      : (folderOf(env, "XDG_CONFIG_HOME") ?? join(home, ".config"));
  return join(settings, "Code", "User");
}

function folderOf(env: Env, name: string): string | null {
  const value = env[name];
  return value === undefined || value === "" ? null : resolve(value);
}
