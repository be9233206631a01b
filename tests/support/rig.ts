import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { sleep } from "@capsem/base";
import type { Client, Vm } from "@capsem/sdk";
import { createNodeClient } from "@capsem/sdk/node";
import * as z from "zod";

const root = resolve(import.meta.dirname, "..", "..");
const dist = (name: string) => join(root, "dist", name);
export const SOAK = process.env.CAPSEM_SOAK === "1";
/** Rounds of a test: the full count in soak, a few in the normal run. */
export const rounds = (normal: number, soak: number): number => (SOAK ? soak : normal);

export interface CliResult {
  readonly code: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

export interface RunningCli {
  readonly child: ChildProcess;
  readonly result: Promise<CliResult>;
}

/** A gateway of a rig's own, on a port of its own; it ends with the rig. */
export interface Gateway {
  readonly url: string;
  readonly tokenFile: string;
  readonly pid: number;
  /** Replaces the token; what has only the old one is refused from then on. */
  rotateToken(): Promise<void>;
  stop(): Promise<void>;
}

export interface Rig {
  readonly home: string;
  /** Images and goldens, shared by all rigs. */
  readonly cache: string;
  readonly client: Client;
  /** The service's pid, as it wrote it. */
  servicePid(): number;
  cli(args: readonly string[], options?: CliOptions): Promise<CliResult>;
  startCli(args: readonly string[], options?: CliOptions): RunningCli;
  create(request?: {
    name?: string;
    cpus?: number;
    memory_gib?: number;
    env?: Record<string, string>;
  }): Promise<Vm>;
  /** stdout of a command that must succeed. */
  sh(vm: Vm, command: string): Promise<string>;
  startService(): Promise<void>;
  startGateway(): Promise<Gateway>;
  stop(): Promise<void>;
}

export interface CliOptions {
  readonly input?: string | Uint8Array;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly timeoutMs?: number;
}

function cacheFolder(): string {
  return process.env.CAPSEM_CACHE ?? process.env.CAPSEM_HOME ?? join(process.env.HOME ?? "/root", ".capsem");
}

/** `settings` by their keys, as `limits.idle_secs`; `rules` is the text of rule tables. */
function settingsText(settings: Record<string, number | boolean | string>, rules: string): string {
  const lines = Object.entries(settings).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
  return `${lines.join("\n")}\n${rules}`;
}

/** A service with a home of its own; images and goldens are the shared cache's. */
export async function startRig(
  options: { pool?: number; settings?: Record<string, number | boolean | string>; rules?: string } = {},
): Promise<Rig> {
  const home = mkdtempSync(join(tmpdir(), "capsem-rig-"));
  writeFileSync(join(home, "settings.toml"), settingsText(options.settings ?? {}, options.rules ?? ""));
  const env = {
    PATH: process.env.PATH ?? "",
    HOME: home,
    CAPSEM_HOME: home,
    CAPSEM_CACHE: cacheFolder(),
    CAPSEM_POOL_SIZE: String(options.pool ?? 0),
    LANG: "C.UTF-8",
  };
  const client = createNodeClient({ home });
  const startCli = (args: readonly string[], cliOptions: CliOptions = {}): RunningCli => {
    const child = spawn(process.execPath, [dist("cli.cjs"), ...args], {
      env: { ...env, CAPSEM_NO_AUTOSTART: "1", ...cliOptions.env },
      cwd: cliOptions.cwd ?? home,
      stdio: ["pipe", "pipe", "pipe"],
      timeout: cliOptions.timeoutMs ?? 90_000,
      killSignal: "SIGKILL",
    });
    const out: Buffer[] = [];
    const err: Buffer[] = [];
    child.stdout.on("data", (chunk: Buffer) => out.push(chunk));
    child.stderr.on("data", (chunk: Buffer) => err.push(chunk));
    child.stdin.on("error", () => undefined);
    child.stdin.end(cliOptions.input ?? "");
    const result = new Promise<CliResult>((done) => {
      child.on("close", (code) =>
        done({ code, stdout: Buffer.concat(out), stderr: Buffer.concat(err).toString() }),
      );
    });
    return { child, result };
  };
  const servicePid = () =>
    Number(
      readFileSync(join(home, "run", "service.pid"), "utf8")
        .trim()
        .split(/\s/)[0],
    );
  const startService = async () => {
    const child = spawn(process.execPath, [dist("service.cjs"), "--home", home], {
      env,
      stdio: "ignore",
      detached: true,
    });
    child.unref();
    await until("the service answers", 30_000, () =>
      client.health().then(
        () => true,
        () => false,
      ),
    );
  };
  await startService();
  let gateway: Gateway | null = null;
  return {
    home,
    cache: cacheFolder(),
    client,
    servicePid,
    startCli,
    startService,
    startGateway: async () => {
      gateway = await startGateway((args, cliOptions) => startCli(args, cliOptions).result);
      return gateway;
    },
    cli: (args, cliOptions) => startCli(args, cliOptions).result,
    create: async (request = {}) => client.vm((await client.vms.create(request)).id),
    sh: async (vm, command) => {
      const result = await vm.exec({ command, timeout_secs: 60 });
      if (result.exit_code !== 0)
        throw new Error(`"${command}" ended with ${result.exit_code}: ${result.stderr.data}`);
      return result.stdout.data;
    },
    stop: async () => {
      client.close();
      await gateway?.stop();
      const pid = servicePid();
      if (!isAlive(pid)) throw new Error(`the service (pid ${pid}) died by itself:\n${lastWords(home)}`);
      process.kill(pid, "SIGTERM");
      await until("the service ended", 30_000, () => !isAlive(pid));
      await until("nothing of the rig is left", 10_000, () => processesOf(home).length === 0);
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** Why a service may have ended: what it wrote of its own abnormal ends, and the end of its log. */
function lastWords(home: string): string {
  const panics = join(home, "logs", "panics");
  const written = existsSync(panics) ? readdirSync(panics).map((name) => join(panics, name)) : [];
  const log = readFileSync(join(home, "logs", "service.jsonl"), "utf8")
    .split("\n")
    .slice(-30)
    .join("\n");
  return [...written.map((path) => readFileSync(path, "utf8")), log].join("\n");
}

const gatewayStart = z.object({ pid: z.number(), url: z.string(), token_file: z.string() });

/** As a user would: with the CLI, on any free port. */
async function startGateway(cli: Rig["cli"]): Promise<Gateway> {
  const run = async (...args: readonly string[]) => {
    const { code, stdout, stderr } = await cli(["gateway", ...args, "--json"]);
    if (code !== 0) throw new Error(`gateway ${args[0]} ended with ${code}: ${stderr}`);
    return JSON.parse(stdout.toString()) as unknown;
  };
  const { pid, url, token_file: tokenFile } = gatewayStart.parse(await run("start", "--port", "0"));
  return {
    pid,
    url,
    tokenFile,
    rotateToken: async () => void (await run("rotate")),
    stop: async () => {
      await run("stop");
      await until("the gateway ended", 10_000, () => !isAlive(pid));
    },
  };
}

/** Polls a condition of the world outside; fails by name when it does not come true in time. */
export async function until(
  what: string,
  timeoutMs: number,
  condition: () => boolean | Promise<boolean>,
): Promise<number> {
  const started = performance.now();
  for (;;) {
    if (await condition()) return performance.now() - started;
    if (performance.now() - started > timeoutMs) throw new Error(`waited ${timeoutMs} ms in vain: ${what}`);
    await sleep(20);
  }
}

export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return !/\) [ZX] /.test(stat);
  } catch {
    return false;
  }
}

interface VmProcesses {
  readonly owner: number;
  readonly hypervisor: number;
}

/** The processes of one VM, from what the service recorded. */
export function processesOfVm(home: string, vmId: string): VmProcesses {
  const text = readFileSync(join(home, "vms", vmId, "processes.json"), "utf8");
  const found = JSON.parse(text) as Record<string, unknown>;
  const pidOf = (role: string) => {
    const entry = found[role];
    const pid = typeof entry === "number" ? entry : (entry as { pid?: number } | undefined)?.pid;
    if (pid === undefined) throw new Error(`no ${role} in ${text}`);
    return pid;
  };
  return { owner: pidOf("owner"), hypervisor: pidOf("hypervisor") };
}

/** Living owners and hypervisors of a home: owners hold its folders, hypervisors carry its VM ids in their names. */
export function processesOf(home: string): number[] {
  const ids = existsSync(join(home, "vms")) ? readdirSync(join(home, "vms")) : [];
  const found: number[] = [];
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || !isAlive(pid)) continue;
    let words = "";
    try {
      words = readFileSync(`/proc/${pid}/cmdline`, "utf8");
    } catch {
      continue;
    }
    if (ids.some((id) => words.includes(`capsem-${id}`)) || words.includes(home)) found.push(pid);
  }
  return found;
}
