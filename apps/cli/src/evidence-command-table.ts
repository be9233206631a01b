import type { Command } from "./command-table.ts";
import type { Option } from "./option-table.ts";

const SINCE: Option = {
  name: "since",
  value: "TIME",
  summary: "Not older than this: 30s, 10m, 2h, 7d, or an ISO time",
};
const LIMIT: Option = { name: "limit", value: "N", summary: "At most so many (default 50)" };
const GONE = "VM is an id or a name, also of a VM that is gone, or host for this machine";

/** Commands about what was done. */
export const EVIDENCE_COMMANDS: readonly Command[] = [
  {
    name: "timeline",
    usage: "timeline VM [OPTIONS]",
    summary: `Show what was done in and to a VM, the last at the end. ${GONE}`,
    options: [
      SINCE,
      {
        name: "layers",
        value: "LIST",
        summary: "Only these: exec,file,tool,net,lifecycle,settings,ask,rule",
      },
      { name: "trace", value: "ID", summary: "Only what belongs to one request" },
      LIMIT,
    ],
    words: [1, 1],
    completes: { VM: "ledger" },
    exits: "capsem",
    examples: ["capsem timeline dev --since 1h", "capsem timeline dev --layers exec,file --limit 500"],
    load: async () => (await import("./command/timeline.ts")).timeline,
  },
  {
    name: "history",
    usage: "history VM [--search TEXT] [--limit N]",
    summary: `Show the commands of a VM, the last at the end. ${GONE}`,
    options: [{ name: "search", value: "TEXT", summary: "Only commands with this text" }, LIMIT],
    words: [1, 1],
    completes: { VM: "ledger" },
    exits: "capsem",
    examples: ["capsem history dev --search make"],
    load: async () => (await import("./command/history.ts")).history,
  },
  {
    name: "events",
    usage: "events VM [OPTIONS]",
    summary: `Show what was decided, a line each, the last at the end, with the fields that tell it from others. ${GONE}`,
    options: [
      {
        name: "action",
        value: "ACTION",
        choices: ["allow", "ask", "block"],
        summary: "Only what was decided so",
      },
      { name: "type", value: "TYPE", summary: "Only such events, as process.exec" },
      { name: "rule", value: "NAME", summary: "Only what this rule decided" },
      { name: "full", summary: "Every field that rules saw, and every rule that matched" },
      SINCE,
      LIMIT,
    ],
    words: [1, 1],
    completes: { VM: "ledger" },
    exits: "capsem",
    examples: ["capsem events dev --action block", "capsem events dev --rule no-push --full"],
    load: async () => (await import("./command/events.ts")).events,
  },
  {
    name: "ledger list",
    aliases: ["ledger"],
    usage: "ledger list",
    summary: "List the ledgers of VMs that are there and of those that are gone",
    options: [{ name: "names", summary: "Only names, and ids of those without one" }],
    words: [0, 0],
    exits: "capsem",
    examples: ["capsem ledger list"],
    load: async () => (await import("./command/ledger.ts")).list,
  },
  {
    name: "ledger verify",
    usage: "ledger verify VM [--archive] | ledger verify --all [--archive]",
    summary: `Say whether every row is what was written, and which is the first that is not. Exit code 1 where one is broken and was not set aside. ${GONE}`,
    options: [
      { name: "all", summary: "Every ledger" },
      { name: "archive", summary: "Set broken ones aside, so that their VMs start again" },
    ],
    words: [0, 1],
    completes: { VM: "ledger" },
    exits: "capsem",
    examples: ["capsem ledger verify --all", "capsem ledger verify dev --archive"],
    load: async () => (await import("./command/ledger.ts")).verify,
  },
  {
    name: "ledger export",
    usage: "ledger export VM [--output FILE]",
    summary: `Write every row as JSON lines, in the order of the chain. ${GONE}`,
    options: [{ name: "output", value: "FILE", summary: "Into this file, readable by you alone" }],
    words: [1, 1],
    completes: { VM: "ledger" },
    exits: "capsem",
    examples: ["capsem ledger export dev --output dev.jsonl"],
    load: async () => (await import("./command/ledger.ts")).exportLedger,
  },
];
