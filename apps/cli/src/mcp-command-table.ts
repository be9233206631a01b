import type { Command } from "./command-table.ts";
import type { Option } from "./option-table.ts";

const NAMES: Option = { name: "names", summary: "Only names" };
const PERMISSIONS = ["allow", "ask", "block", "default"] as const;
const SERVER = { SERVER: "server" } as const;

/** The names of `CLIENT_NAMES`, which a test compares: their table would cost every command its loading. */
const MCP_CLIENTS = ["claude", "codex", "gemini", "cursor", "vscode"] as const;

/** Tools that programs in VMs may call, and Capsem's own tools for the agents of this machine. */
export const MCP_COMMANDS: readonly Command[] = [...servers(), ...tools(), ...pins(), ...clients()];

function servers(): Command[] {
  const load = () => import("./command/mcp-servers.ts");
  return [
    {
      name: "mcp info",
      usage: "mcp info",
      summary: "Show tool servers in short, and where programs in a VM find their tools",
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem mcp info"],
      load: async () => (await load()).info,
    },
    {
      name: "mcp servers",
      aliases: ["mcp list", "mcp ls"],
      usage: "mcp servers",
      summary: "List tool servers with their state, and how many of their tools wait for approval",
      options: [NAMES],
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem mcp servers"],
      load: async () => (await load()).list,
    },
    {
      name: "mcp add",
      usage: "mcp add NAME URL [OPTIONS]",
      summary:
        "Declare a tool server for programs in VMs, or change its declaration. What is not said again has its default. A secret in a header is named, as credential:NAME",
      options: [
        {
          name: "transport",
          value: "NAME",
          choices: ["auto", "http", "sse"],
          summary: "auto (default), http, or sse of older servers",
        },
        {
          name: "protocol",
          value: "NAME",
          choices: ["auto", "legacy", "modern"],
          summary: "auto (default), legacy (handshake), or modern (2026-07-28)",
        },
        {
          name: "header",
          value: "K=V",
          repeats: true,
          summary: "Send it with each request; credential:NAME in it becomes that secret on the way",
        },
        {
          name: "grant",
          value: "HOST:PORT",
          repeats: true,
          summary: "Let it be at this private or local address",
        },
        { name: "timeout-secs", value: "SECS", summary: "Longest call, 1 to 300 (default 300)" },
        { name: "disabled", summary: "Declare it, and leave it off" },
      ],
      words: [2, 2],
      completes: { NAME: "server" },
      exits: "capsem",
      examples: [
        "capsem mcp add tracker https://mcp.example.com/mcp",
        "capsem mcp add bugs https://mcp.example.com/ --header X-Key=credential:bugs",
        "capsem mcp add db http://127.0.0.1:8080/mcp --grant 127.0.0.1:8080",
      ],
      load: async () => (await load()).add,
    },
    {
      name: "mcp remove",
      aliases: ["mcp rm"],
      usage: "mcp remove NAME",
      summary: "Forget a tool server, what was approved of it, and the permissions of its tools",
      words: [1, 1],
      completes: { NAME: "server" },
      exits: "capsem",
      examples: ["capsem mcp remove tracker"],
      load: async () => (await load()).remove,
    },
    {
      name: "mcp refresh",
      usage: "mcp refresh SERVER",
      summary: "Look at a server now: its tools, and whether they are what was approved",
      words: [1, 1],
      completes: SERVER,
      exits: "capsem",
      examples: ["capsem mcp refresh tracker"],
      load: async () => (await load()).refresh,
    },
  ];
}

function tools(): Command[] {
  const load = () => import("./command/mcp-tools.ts");
  return [
    {
      name: "mcp tools",
      usage: "mcp tools SERVER",
      summary:
        "List tools of a server as they were last seen, with what a call would meet now. CALL is that of a call without arguments",
      options: [NAMES],
      words: [1, 1],
      completes: SERVER,
      exits: "capsem",
      examples: ["capsem mcp tools local", "capsem mcp tools tracker --json"],
      load: async () => (await load()).list,
    },
    {
      name: "mcp default",
      usage: "mcp default [PERMISSION]",
      summary:
        "Show or say what a tool meets of which no rule speaks. PERMISSION is allow, ask, block, or default: what the preset says",
      words: [0, 1],
      choices: { PERMISSION: PERMISSIONS },
      exits: "capsem",
      examples: ["capsem mcp default", "capsem mcp default ask"],
      load: async () => (await load()).usual,
    },
    {
      name: "mcp permit",
      usage: "mcp permit SERVER TOOL PERMISSION",
      summary:
        "Allow, ask about or block one tool, by a rule of its own. PERMISSION is allow, ask, block, or default, which takes the rule away",
      words: [3, 3],
      completes: SERVER,
      choices: { PERMISSION: PERMISSIONS },
      exits: "capsem",
      examples: ["capsem mcp permit tracker delete_issue block", "capsem mcp permit local fetch_http ask"],
      load: async () => (await load()).permit,
    },
    {
      name: "mcp call",
      usage: "mcp call SERVER TOOL [OPTIONS]",
      summary:
        "Call a tool, on the same way and by the same rules as a program in a VM. Exit code 1 where the tool says that it failed",
      options: [
        {
          name: "arg",
          value: "K=V",
          repeats: true,
          summary: "One argument; V is JSON, or text, and text where the tool takes only that",
        },
        { name: "json-args", value: "JSON", summary: "All of them as one object; - is standard input" },
        { name: "vm", value: "VM", summary: "As this VM's call, in its record" },
      ],
      words: [2, 2],
      completes: SERVER,
      exits: "capsem",
      examples: [
        "capsem mcp call local echo --arg text=hello",
        "capsem mcp call tracker search --json-args - --vm dev",
      ],
      load: async () => (await import("./command/mcp-call.ts")).call,
    },
  ];
}

function pins(): Command[] {
  const load = () => import("./command/mcp-pins.ts");
  return [
    {
      name: "mcp pins",
      usage: "mcp pins SERVER",
      summary: "Show which tools are what was approved, and how the others differ from it",
      words: [1, 1],
      completes: SERVER,
      exits: "capsem",
      examples: ["capsem mcp pins tracker"],
      load: async () => (await load()).list,
    },
    {
      name: "mcp approve",
      usage: "mcp approve SERVER [TOOL] [--yes]",
      summary:
        "Approve what a server's tools, or one of them, are now. The difference is shown first, and only what was shown is approved",
      options: [{ name: "yes", short: "y", summary: "Do not ask; needed where there is no terminal" }],
      words: [1, 2],
      completes: SERVER,
      exits: "capsem",
      examples: ["capsem mcp approve tracker", "capsem mcp approve tracker search --yes"],
      load: async () => (await load()).approve,
    },
  ];
}

function clients(): Command[] {
  const load = () => import("./command/mcp.ts");
  const scope: Option = {
    name: "scope",
    value: "NAME",
    choices: ["user", "project", "local"],
    summary: "user (default), project, or for claude local",
  };
  return [
    {
      name: "mcp install",
      usage: "mcp install CLIENT [OPTIONS] | mcp install [CLIENT] --print",
      summary:
        "Give an AI agent Capsem's tools: write capsem-mcp into its configuration. CLIENT is claude, codex, gemini, cursor or vscode. The token stays in its file",
      options: [
        scope,
        { name: "gateway-url", value: "URL", summary: "The gateway (default: this machine's)" },
        { name: "token-file", value: "PATH", summary: "The file with its token (default: this gateway's)" },
        { name: "print", summary: "Print it for any client and write nothing" },
      ],
      words: [0, 1],
      choices: { CLIENT: MCP_CLIENTS },
      exits: "capsem",
      examples: ["capsem mcp install claude", "capsem mcp install codex --print"],
      load: async () => (await load()).install,
    },
    {
      name: "mcp uninstall",
      usage: "mcp uninstall CLIENT [--scope NAME]",
      summary: "Take capsem-mcp out of a client's configuration",
      options: [scope],
      words: [1, 1],
      choices: { CLIENT: MCP_CLIENTS },
      exits: "capsem",
      examples: ["capsem mcp uninstall claude"],
      load: async () => (await load()).uninstall,
    },
  ];
}
