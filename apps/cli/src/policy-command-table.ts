import type { Command } from "./command-table.ts";
import type { Option } from "./option-table.ts";
import { RULE_COMMANDS } from "./rule-command-table.ts";

const NAMES: Option = { name: "names", summary: "Only names" };

/** Commands about what may be done: rules, settings, asks, credentials. */
export const POLICY_COMMANDS: readonly Command[] = [
  ...RULE_COMMANDS,
  ...settings(),
  ...corp(),
  ...asks(),
  ...credentials(),
];

function settings(): Command[] {
  const load = () => import("./command/settings.ts");
  return [
    {
      name: "settings list",
      aliases: ["settings"],
      usage: "settings list",
      summary: "List every setting with its value and who set it",
      options: [NAMES],
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem settings list"],
      load: async () => (await load()).list,
    },
    {
      name: "settings get",
      usage: "settings get KEY",
      summary: "Print the value of a setting",
      words: [1, 1],
      completes: { KEY: "setting" },
      exits: "capsem",
      examples: ["capsem settings get profiles.preset"],
      load: async () => (await load()).get,
    },
    {
      name: "settings set",
      usage: "settings set KEY=VALUE...",
      summary: "Change settings, all of them or none",
      words: [1, 64],
      completes: { KEY: "setting", VALUE: "setting" },
      exits: "capsem",
      examples: ["capsem settings set profiles.preset=locked-down asks.timeout_secs=60"],
      load: async () => (await load()).set,
    },
    {
      name: "settings reset",
      usage: "settings reset KEY...",
      summary: "Take defaults again, all of them or none",
      words: [1, 64],
      completes: { KEY: "setting" },
      exits: "capsem",
      examples: ["capsem settings reset limits.pool_size"],
      load: async () => (await load()).reset,
    },
  ];
}

function corp(): Command[] {
  const load = () => import("./command/corp.ts");
  return [
    {
      name: "corp info",
      aliases: ["corp"],
      usage: "corp info",
      summary: "Show the corporation's policy: its file, rules and locked settings",
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem corp info"],
      load: async () => (await load()).info,
    },
    {
      name: "corp validate",
      usage: "corp validate FILE",
      summary: "Say whether a file could be the corporation's policy. Exit code 1 when not",
      words: [1, 1],
      completes: { FILE: "file" },
      exits: "capsem",
      examples: ["capsem corp validate corp.toml"],
      load: async () => (await load()).validate,
    },
    {
      name: "corp reload",
      usage: "corp reload",
      summary: "Read the corporation's policy and your own files again. Exit code 1 when one has a fault",
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem corp reload"],
      load: async () => (await load()).reload,
    },
  ];
}

function asks(): Command[] {
  const load = () => import("./command/asks.ts");
  const note: Option = { name: "note", value: "TEXT", summary: "Why, for the record" };
  const id = "ID is its first characters, as capsem asks list shows them";
  return [
    {
      name: "asks list",
      aliases: ["asks"],
      usage: "asks list [--all]",
      summary: "List calls that wait for a person, and the scopes that an approval of each may have",
      options: [
        { name: "all", summary: "Answered and expired ones too" },
        { name: "names", summary: "Only ids" },
      ],
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem asks list", "capsem asks list --all --json"],
      load: async () => (await load()).list,
    },
    {
      name: "asks watch",
      usage: "asks watch",
      summary:
        "Show asks as they come. On a terminal a key answers them. Elsewhere each is a line, with --json an object",
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem asks watch", "capsem asks watch --json"],
      load: async () => (await import("./command/asks-watch.ts")).watch,
    },
    {
      name: "asks approve",
      usage: "asks approve ID [--scope SCOPE] [--note TEXT]",
      summary: `Let a call that waits go on. ${id}`,
      options: [
        {
          name: "scope",
          value: "SCOPE",
          choices: ["once", "vm", "always"],
          summary:
            "once (default), vm: the same in this VM, always: for good, by a rule that allows exactly this; capsem asks list shows which it may be",
        },
        note,
      ],
      words: [1, 1],
      completes: { ID: "ask" },
      exits: "capsem",
      examples: ["capsem asks approve ab2cd3", "capsem asks approve ab2cd3 --scope vm"],
      load: async () => (await load()).approve,
    },
    {
      name: "asks deny",
      usage: "asks deny ID [--note TEXT]",
      summary: `Refuse a call that waits. ${id}`,
      options: [note],
      words: [1, 1],
      completes: { ID: "ask" },
      exits: "capsem",
      examples: ["capsem asks deny ab2cd3"],
      load: async () => (await load()).deny,
    },
  ];
}

function credentials(): Command[] {
  const load = () => import("./command/credentials.ts");
  return [
    {
      name: "credentials inject",
      usage: "credentials inject NAME --host HOST... [--keep PLACE]",
      summary:
        "Register a secret. Wherever something is stored, its reference stands instead. It is read from standard input, or typed unseen",
      options: [
        {
          name: "host",
          value: "HOST",
          repeats: true,
          summary: "May see it; *.example.com is a domain and all below",
        },
        {
          name: "keep",
          value: "PLACE",
          choices: ["memory", "file"],
          summary: "memory (default): gone with the service; file: kept, readable by you alone",
        },
      ],
      // One that is given is counted here to be refused there, with the reason.
      words: [1, 64],
      refuses: ["secret", "value", "token", "password"],
      exits: "capsem",
      examples: ["capsem credentials inject github --host api.github.com < token.txt"],
      load: async () => (await load()).inject,
    },
    {
      name: "credentials list",
      aliases: ["credentials"],
      usage: "credentials list",
      summary: "List credentials: names, hosts and references, never a secret",
      options: [NAMES],
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem credentials list"],
      load: async () => (await load()).list,
    },
    {
      name: "credentials delete",
      aliases: ["credentials rm"],
      usage: "credentials delete NAME",
      summary: "Forget a credential, by its name or reference, and name the tool servers that send it",
      words: [1, 1],
      completes: { NAME: "credential" },
      exits: "capsem",
      examples: ["capsem credentials delete github"],
      load: async () => (await load()).remove,
    },
  ];
}
