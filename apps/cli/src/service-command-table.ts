import type { Command } from "./command-table.ts";
import { LOG_OPTIONS, SINCE_OPTIONS } from "./option-table.ts";

/** The sources of `HOST_LOG_SOURCES`, which a test compares: the schemas would cost every command their loading. */
const HOST_LOG_NAMES = [
  ...["service", "gateway", "owner", "ledger"],
  ...["proxy", "egress", "aggregator", "builtin"],
] as const;

/** Commands about Capsem itself while it runs. */
export const SERVICE_COMMANDS: readonly Command[] = [
  {
    name: "status",
    usage: "status",
    summary: "Show the service and the gateway: accelerator, image, policy, ledger, asks, VMs and limits",
    words: [0, 0],
    exits: "capsem",
    examples: ["capsem status --json"],
    load: async () => (await import("./command/status.ts")).status,
  },
  {
    name: "stats",
    usage: "stats [VM]",
    summary:
      "Show what the service did since it started: calls and their times, VMs, jobs, memory. Of a VM, there or gone: what was decided and done in it, counted",
    words: [0, 1],
    completes: { VM: "ledger" },
    exits: "capsem",
    examples: ["capsem stats", "capsem stats dev"],
    load: async () => (await import("./command/stats.ts")).stats,
  },
  {
    name: "triage",
    usage: "triage [--vm VM] [--since TIME] [--limit N]",
    summary: "List what went wrong lately, the worst first: panics, failed VMs, errors, slow calls",
    options: [{ name: "vm", value: "VM", summary: "Only what concerns this VM" }, ...SINCE_OPTIONS],
    words: [0, 0],
    exits: "capsem",
    examples: ["capsem triage --since 1h", "capsem triage --vm dev"],
    load: async () => (await import("./command/triage.ts")).triage,
  },
  {
    name: "panics",
    usage: "panics [--since TIME] [--limit N]",
    summary: "List abnormal ends of Capsem's own processes, the newest first",
    options: SINCE_OPTIONS,
    words: [0, 0],
    exits: "capsem",
    examples: ["capsem panics", "capsem panics --since 7d --json"],
    load: async () => (await import("./command/panics.ts")).panics,
  },
  {
    name: "host-logs",
    usage: "host-logs SOURCE [OPTIONS]",
    summary:
      "Print log lines of one of Capsem's processes. SOURCE is service, gateway, owner (all of them), ledger, or one of those that carry tool calls: proxy, egress, aggregator, builtin",
    options: [
      ...LOG_OPTIONS,
      { name: "max-bytes", value: "N", summary: "At most so much, the newest (default 12288)" },
    ],
    words: [1, 1],
    choices: { SOURCE: HOST_LOG_NAMES },
    exits: "capsem",
    examples: ["capsem host-logs service --tail 20", "capsem host-logs owner --grep lane"],
    load: async () => (await import("./command/host-logs.ts")).hostLogs,
  },
  ...serviceGroup(),
  ...gatewayGroup(),
];

/** Commands that need no service. */
export const SETUP_COMMANDS: readonly Command[] = [
  {
    name: "doctor",
    usage: "doctor",
    summary: "Check what Capsem needs on this machine, with the remedy for what is missing",
    words: [0, 0],
    exits: "capsem",
    examples: ["capsem doctor", "capsem doctor --json"],
    load: async () => (await import("./command/doctor.ts")).doctor,
  },
  {
    name: "completions",
    usage: "completions SHELL",
    summary:
      "Print what completes capsem's words in a shell. SHELL is bash, zsh or fish. The line of the examples goes into the shell's start file",
    words: [1, 1],
    choices: { SHELL: ["bash", "zsh", "fish"] },
    isTerminal: true,
    exits: "capsem",
    examples: [
      "source <(capsem completions bash)",
      "source <(capsem completions zsh)",
      "capsem completions fish | source",
    ],
    load: async () => (await import("./command/completions.ts")).completions,
  },
  {
    name: "version",
    usage: "version",
    summary: "Print the version",
    words: [0, 0],
    exits: "capsem",
    examples: ["capsem version"],
    load: async () => (await import("./command/version.ts")).version,
  },
];

function serviceGroup(): Command[] {
  const load = () => import("./command/service.ts");
  return [
    {
      name: "service start",
      usage: "service start",
      summary: "Start the service, if it does not run",
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem service start"],
      load: async () => (await load()).start,
    },
    {
      name: "service stop",
      usage: "service stop [--force]",
      summary: "Stop the service and all its VMs",
      options: [{ name: "force", summary: "Kill it, also when it does not answer" }],
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem service stop", "capsem service stop --force"],
      load: async () => (await load()).stop,
    },
    {
      name: "service status",
      usage: "service status",
      summary: "Say whether the service runs, without starting it",
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem service status --json"],
      load: async () => (await load()).status,
    },
  ];
}

function gatewayGroup(): Command[] {
  const load = () => import("./command/gateway.ts");
  return [
    {
      name: "gateway start",
      usage: "gateway start [--port N]",
      summary:
        "Start the gateway, and the service, where they do not run; print its URL and its token's file",
      options: [
        {
          name: "port",
          value: "N",
          summary: "Listen here (default: as last chosen, else 19222; 0: a free one)",
        },
        { name: "allow-unconfined", summary: "Also where this machine cannot confine it" },
      ],
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem gateway start", "capsem gateway start --port 0 --json"],
      load: async () => (await load()).start,
    },
    {
      name: "gateway stop",
      usage: "gateway stop [--force]",
      summary: "Stop the gateway; the service and its VMs go on",
      options: [{ name: "force", summary: "Kill it" }],
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem gateway stop"],
      load: async () => (await load()).stop,
    },
    {
      name: "gateway rotate",
      usage: "gateway rotate",
      summary: "Replace the gateway's token; the old one is refused at once",
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem gateway rotate"],
      load: async () => (await load()).rotate,
    },
    {
      name: "gateway status",
      usage: "gateway status",
      summary: "Say whether the gateway runs, and where; exit code 1 when it does not",
      words: [0, 0],
      exits: "capsem",
      examples: ["capsem gateway status --json"],
      load: async () => (await load()).status,
    },
  ];
}
