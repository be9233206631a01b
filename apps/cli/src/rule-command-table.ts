import type { Command } from "./command-table.ts";

/** Changes are taken from a file as well, and change nothing in this version: they are not offered. */
const ACTIONS = ["allow", "ask", "block"] as const;
const LEVELS = ["none", "informational", "low", "medium", "high", "critical"] as const;

/** Commands about rules. */
export const RULE_COMMANDS: readonly Command[] = [...written(), ...tried()];

function written(): Command[] {
  const load = () => import("./command/rules.ts");
  return [
    {
      name: "rules list",
      aliases: ["rules"],
      usage: "rules list [--all]",
      summary: "List the rules in force in the order of judgement, and what happens where none matches",
      options: [
        { name: "all", summary: "Built-in rules too" },
        { name: "names", summary: "Only the names of your own" },
      ],
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem rules list --all", "capsem rules list --json"],
      load: async () => (await load()).list,
    },
    {
      name: "rules show",
      usage: "rules show NAME",
      summary: "Show one rule whole, with its file and line. NAME is its id, or the last part of it",
      words: [1, 1],
      completes: { NAME: "rule" },
      exits: "capsem",
      examples: ["capsem rules show no-push", "capsem rules show default.allow-exec"],
      load: async () => (await import("./command/rules-show.ts")).show,
    },
    {
      name: "rules put",
      usage: "rules put NAME --match EXPR --action ACTION [OPTIONS] | rules put [NAME] --file FILE",
      summary:
        "Write one of your rules; it holds when this returns. EXPR is CEL over an event's fields: capsem events VM --full shows them",
      options: [
        { name: "match", value: "EXPR", summary: "What it is about" },
        { name: "action", value: "ACTION", choices: ACTIONS, summary: "allow, ask or block" },
        { name: "reason", value: "TEXT", summary: "What whoever is refused is told" },
        { name: "priority", value: "N", summary: "10 to 1000, lower comes first; default 10, 20 for ask" },
        { name: "detection", value: "LEVEL", choices: LEVELS, summary: "Also report a match at this level" },
        { name: "disabled", summary: "Write it, and leave it off" },
        {
          name: "file",
          value: "FILE",
          summary: "Its [profiles.rules.NAME] tables, or NAME's alone; - is standard input",
        },
      ],
      words: [0, 1],
      completes: { NAME: "rule" },
      exits: "capsem",
      examples: [
        "capsem rules put push --action ask --match \"process.command.contains('push')\"",
        "capsem rules put --file rule.toml",
      ],
      load: async () => (await load()).put,
    },
    {
      name: "rules delete",
      aliases: ["rules rm"],
      usage: "rules delete NAME",
      summary: "Remove one of your rules",
      words: [1, 1],
      completes: { NAME: "rule" },
      exits: "capsem",
      examples: ["capsem rules delete no-push"],
      load: async () => (await load()).remove,
    },
  ];
}

function tried(): Command[] {
  const load = () => import("./command/rules-try.ts");
  return [
    {
      name: "rules evaluate",
      usage:
        "rules evaluate --command LINE [--vm VM] | rules evaluate --type TYPE --field KEY=VALUE... | rules evaluate --event FILE",
      summary: "Say what would be decided of an event, and why. Nothing is done, and nothing recorded",
      options: [
        { name: "command", value: "LINE", summary: "A command for a VM" },
        { name: "type", value: "TYPE", summary: "Any event, as file.import or http.request" },
        { name: "field", value: "K=V", repeats: true, summary: "One of its fields; V is JSON, or text" },
        { name: "event", value: "FILE", summary: "JSON with type and fields; - is standard input" },
        { name: "vm", value: "VM", summary: "In this VM. One that there is not yet is --field vm.name=NAME" },
        { name: "rules", value: "FILE", summary: "With these rules instead of your own" },
      ],
      words: [0, 0],
      exits: "capsem",
      examples: [
        'capsem rules evaluate --command "git push" --vm dev',
        "capsem rules evaluate --type file.export --field file.export.path=/etc/shadow",
      ],
      load: async () => (await load()).evaluate,
    },
    {
      name: "rules replay",
      usage: "rules replay --vm VM [FILE] [--since TIME]",
      summary: "Judge a VM's past again, by the rules of a file or those in force, and list what differs",
      options: [
        { name: "vm", value: "VM", summary: "Whose past; it may be gone" },
        { name: "since", value: "TIME", summary: "Not older than this: 30s, 10m, 2h, 7d, or an ISO time" },
      ],
      words: [0, 1],
      completes: { FILE: "file" },
      exits: "capsem",
      examples: ["capsem rules replay --vm dev stricter.toml --since 7d"],
      load: async () => (await load()).replay,
    },
    {
      name: "rules lint",
      usage: "rules lint [FILE]",
      summary:
        "Name faults of a rule file, or of the rules in force, and rules that do nothing. Exit code 1 with a fault",
      words: [0, 1],
      completes: { FILE: "file" },
      exits: "capsem",
      examples: ["capsem rules lint", "capsem rules lint rules.toml"],
      load: async () => (await import("./command/rules.ts")).lint,
    },
  ];
}
