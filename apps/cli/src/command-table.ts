import type { Handler } from "./context.ts";
import { EVIDENCE_COMMANDS } from "./evidence-command-table.ts";
import { MCP_COMMANDS } from "./mcp-command-table.ts";
import { JOB_OPTIONS, LOG_OPTIONS, type Option, SIZE_OPTIONS } from "./option-table.ts";
import { POLICY_COMMANDS } from "./policy-command-table.ts";
import { SERVICE_COMMANDS, SETUP_COMMANDS } from "./service-command-table.ts";

/** What `capsem ... --names` lists for completion, or a local file. */
export type NameKind = "rule" | "setting" | "ask" | "credential" | "ledger" | "server" | "file";

export interface Command {
  /** One word, or two for a command of a group. */
  readonly name: string;
  readonly aliases?: readonly string[];
  readonly usage: string;
  readonly summary: string;
  readonly options?: readonly Option[];
  /** How many words it takes; what follows `--` is apart. */
  readonly words: readonly [number, number];
  /** What a word of the usage may be, where that is a closed list. */
  readonly choices?: Readonly<Record<string, readonly string[]>>;
  /** What a word of the usage names, where the service knows them all. */
  readonly completes?: Readonly<Record<string, NameKind>>;
  /** Options that people would try to give a secret with: refused with the reason. */
  readonly refuses?: readonly string[];
  /** Words after `--` are a command for the guest. */
  readonly takesCommand?: true;
  /** It has no JSON form. */
  readonly isTerminal?: true;
  /** Whose exit codes it has. */
  readonly exits: "job" | "capsem";
  readonly examples: readonly string[];
  readonly load: () => Promise<Handler>;
}

const INCOMPLETE =
  "What --copy-back cannot bring home is listed; that is exit code 125 only where the command's own is 0";
const FORMS = "COMMAND is one string for bash, or words after --";

export const COMMANDS: readonly Command[] = [
  {
    name: "run",
    usage: "run [OPTIONS] COMMAND | run [OPTIONS] -- WORD...",
    summary: `Run one command in a VM of its own, destroyed at its end. ${FORMS}. ${INCOMPLETE}`,
    options: [
      { name: "copy", value: "DIR", summary: "Copy this folder into /workspace first" },
      { name: "copy-back", summary: "Bring changes in /workspace home into the folder of --copy" },
      { name: "delete", summary: "With --copy-back: remove here what the command removed" },
      ...JOB_OPTIONS,
      ...SIZE_OPTIONS,
    ],
    words: [0, 1],
    takesCommand: true,
    exits: "job",
    examples: [
      'capsem run "uname -a"',
      'capsem run --copy . --copy-back "ls -l > listing.txt"',
      "echo hi | capsem run cat",
    ],
    load: async () => (await import("./command/run.ts")).run,
  },
  {
    name: "create",
    usage: "create [OPTIONS]",
    summary: "Create and start a VM; with a name it is kept when it stops",
    options: [
      { name: "name", short: "n", value: "NAME", summary: "Keep the VM under this name" },
      ...SIZE_OPTIONS,
      {
        name: "env",
        short: "e",
        value: "K=V",
        repeats: true,
        summary: "Set a variable for every command in it",
      },
    ],
    words: [0, 0],
    exits: "capsem",
    examples: ["capsem create --name dev --memory 1"],
    load: async () => (await import("./command/create.ts")).create,
  },
  {
    name: "list",
    aliases: ["ls"],
    usage: "list [--quiet] [--names]",
    summary: "List all VMs",
    options: [
      { name: "quiet", short: "q", summary: "Only ids" },
      { name: "names", summary: "Only names, and ids of those without one" },
    ],
    words: [0, 0],
    exits: "capsem",
    examples: ["capsem list", "capsem ls --json"],
    load: async () => (await import("./command/list.ts")).list,
  },
  {
    name: "info",
    usage: "info VM",
    summary: "Show everything about a VM",
    words: [1, 1],
    exits: "capsem",
    examples: ["capsem info dev"],
    load: async () => (await import("./command/info.ts")).info,
  },
  {
    name: "exec",
    usage: "exec [OPTIONS] VM COMMAND | exec [OPTIONS] VM -- WORD...",
    summary: `Run a command in a running VM. ${FORMS}`,
    options: JOB_OPTIONS,
    words: [1, 2],
    takesCommand: true,
    exits: "job",
    examples: ['capsem exec dev "ls -l"', "capsem exec --user root dev -- ls -l /root"],
    load: async () => (await import("./command/exec.ts")).exec,
  },
  {
    name: "shell",
    usage: "shell [OPTIONS] VM [COMMAND] | shell VM --job JOB",
    summary: "Open a terminal in a VM, or come back to one",
    options: [
      { name: "job", value: "JOB", summary: "Come back to this job's terminal" },
      ...JOB_OPTIONS.filter((option) => option.name !== "timeout"),
    ],
    words: [1, 2],
    takesCommand: true,
    isTerminal: true,
    exits: "job",
    examples: ["capsem shell dev", "capsem shell dev --job job_abcdefghijklmnop"],
    load: async () => (await import("./command/shell.ts")).shell,
  },
  ...lifecycle(),
  {
    name: "cp",
    usage: "cp SOURCE TARGET",
    summary: "Copy a file or folder; VM:PATH is in a VM, - is standard input or output",
    words: [2, 2],
    exits: "capsem",
    examples: [
      "capsem cp notes.txt dev:",
      "capsem cp dev:/workspace/out ./out",
      "capsem cp dev:log.txt - | less",
    ],
    load: async () => (await import("./command/cp.ts")).cp,
  },
  {
    name: "files list",
    aliases: ["files ls"],
    usage: "files list VM [PATH]",
    summary: "List a folder in a VM (default /workspace)",
    options: [{ name: "depth", value: "N", summary: "Levels below it (default 1)" }],
    words: [1, 2],
    exits: "capsem",
    examples: ["capsem files list dev src --depth 2"],
    load: async () => (await import("./command/files.ts")).list,
  },
  {
    name: "files stat",
    usage: "files stat VM PATH",
    summary: "Show a file's type, size and mode",
    words: [2, 2],
    exits: "capsem",
    examples: ["capsem files stat dev notes.txt"],
    load: async () => (await import("./command/files.ts")).stat,
  },
  {
    name: "files mkdir",
    usage: "files mkdir [-p] VM PATH",
    summary: "Make a folder",
    options: [{ name: "parents", short: "p", summary: "Make missing parents; one that exists is fine" }],
    words: [2, 2],
    exits: "capsem",
    examples: ["capsem files mkdir -p dev a/b"],
    load: async () => (await import("./command/files.ts")).mkdir,
  },
  {
    name: "files rename",
    aliases: ["files mv"],
    usage: "files rename VM PATH NEW_PATH",
    summary: "Rename a file or folder",
    words: [3, 3],
    exits: "capsem",
    examples: ["capsem files rename dev a.txt b.txt"],
    load: async () => (await import("./command/files.ts")).rename,
  },
  {
    name: "files rm",
    usage: "files rm [-r] VM PATH",
    summary: "Remove a file, or a folder with all in it",
    options: [{ name: "recursive", short: "r", summary: "Remove a folder with all in it" }],
    words: [2, 2],
    exits: "capsem",
    examples: ["capsem files rm -r dev build"],
    load: async () => (await import("./command/files.ts")).remove,
  },
  {
    name: "jobs list",
    aliases: ["jobs"],
    usage: "jobs list VM",
    summary: "List running and recent jobs of a VM",
    words: [1, 1],
    exits: "capsem",
    examples: ["capsem jobs list dev", "capsem jobs dev"],
    load: async () => (await import("./command/jobs.ts")).list,
  },
  {
    name: "jobs output",
    usage: "jobs output VM JOB [--follow] [--offset BYTES]",
    summary: "Print the kept output of a job",
    options: [
      { name: "follow", short: "f", summary: "Wait for more until the job ends" },
      { name: "offset", value: "BYTES", summary: "Begin here, counting both streams" },
    ],
    words: [2, 2],
    exits: "capsem",
    examples: ["capsem jobs output dev job_abcdefghijklmnop --follow"],
    load: async () => (await import("./command/jobs.ts")).output,
  },
  {
    name: "jobs signal",
    usage: "jobs signal VM JOB SIGNAL",
    summary: "Send a signal by name or number; KILL ends the job's whole tree",
    words: [3, 3],
    exits: "capsem",
    examples: ["capsem jobs signal dev job_abcdefghijklmnop TERM"],
    load: async () => (await import("./command/jobs.ts")).signal,
  },
  {
    name: "logs",
    usage: "logs VM [OPTIONS]",
    summary: "Print the logs of a VM",
    options: [
      {
        name: "source",
        value: "NAME",
        choices: ["console", "guest", "owner"],
        summary: "console, guest or owner (default: all that have lines)",
      },
      ...LOG_OPTIONS,
    ],
    words: [1, 1],
    exits: "capsem",
    examples: ["capsem logs dev --source guest --tail 20"],
    load: async () => (await import("./command/logs.ts")).logs,
  },
  ...EVIDENCE_COMMANDS,
  ...POLICY_COMMANDS,
  ...SERVICE_COMMANDS,
  ...MCP_COMMANDS,
  ...SETUP_COMMANDS,
];

function lifecycle(): Command[] {
  const load = () => import("./command/lifecycle.ts");
  const of = (name: string, usage: string, summary: string, examples: string[], words: [number, number]) =>
    ({ name, usage, summary, examples, words, exits: "capsem" }) as const;
  return [
    {
      ...of("start", "start VM...", "Start stopped VMs", ["capsem start dev"], [1, 64]),
      load: async () => (await load()).start,
    },
    {
      ...of("stop", "stop VM...", "Stop VMs; one without a name is destroyed", ["capsem stop dev"], [1, 64]),
      load: async () => (await load()).stop,
    },
    {
      ...of("restart", "restart VM...", "Stop and start kept VMs", ["capsem restart dev"], [1, 64]),
      load: async () => (await load()).restart,
    },
    {
      ...of("rename", "rename VM NAME", "Give a kept VM another name", ["capsem rename dev prod"], [2, 2]),
      load: async () => (await load()).rename,
    },
    {
      ...of(
        "persist",
        "persist VM NAME",
        "Keep a temporary VM under a name",
        ["capsem persist vm_abcdefghijklmnop dev"],
        [2, 2],
      ),
      load: async () => (await load()).persist,
    },
    {
      ...of(
        "delete",
        "delete VM...",
        "Delete VMs and their disks, in any state",
        ["capsem delete dev"],
        [1, 64],
      ),
      aliases: ["rm"],
      load: async () => (await load()).remove,
    },
    {
      ...of(
        "purge",
        "purge [--all] [--yes]",
        "Delete all temporary VMs, also those that failed",
        ["capsem purge", "capsem purge --all --yes"],
        [0, 0],
      ),
      options: [
        { name: "all", summary: "Kept VMs too; asked first on a terminal" },
        { name: "yes", short: "y", summary: "Do not ask" },
      ],
      load: async () => (await load()).purge,
    },
  ];
}
