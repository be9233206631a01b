import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Gateway, type Rig, startRig } from "../support/rig.ts";
import { type ClientHome, NODE_22, openClientHome } from "./clients.ts";
import { installPackedMcp } from "./packed-mcp.ts";
import { readWireLog, type WireLog } from "./wire-log.ts";

/** One connection of a client to capsem-mcp, with everything on the wire recorded. */
export interface Connection {
  readonly command: string;
  readonly args: readonly string[];
  /** What was on the wire, once the server has ended. */
  wire(): Promise<WireLog>;
}

/** What a client stands before: a service, its gateway, the packed capsem-mcp, and a home for the client. */
export interface Stage {
  readonly rig: Rig;
  readonly gateway: Gateway;
  readonly home: ClientHome;
  connect(name: string): Connection;
  close(): Promise<void>;
}

/** Opens all of it; whatever was opened is closed again when a later part fails. */
export async function openStage(): Promise<Stage> {
  const closers: (() => Promise<void> | void)[] = [];
  const close = async () => {
    const faults: unknown[] = [];
    // A client that left a process behind is a fault, and no reason to leave the service behind too.
    for (const closer of closers.splice(0).reverse())
      await Promise.resolve()
        .then(closer)
        .catch((cause: unknown) => faults.push(cause));
    if (faults.length > 0) throw new AggregateError(faults, `Cannot close the stage: ${faults.join("; ")}`);
  };
  try {
    const rig = await startRig();
    closers.push(() => rig.stop());
    const gateway = await rig.startGateway();
    const folder = mkdtempSync(join(tmpdir(), "capsem-stage-"));
    closers.push(() => rmSync(folder, { recursive: true, force: true }));
    const program = await installPackedMcp(folder);
    const home = openClientHome();
    closers.push(() => home.remove());
    return { rig, gateway, home, close, ...connections({ folder, program, gateway }) };
  } catch (cause) {
    await close();
    throw cause;
  }
}

/** The same, once a first VM has run: after a change of the guest that takes longer than a client waits for a call. */
export async function openVmStage(): Promise<Stage> {
  const stage = await openStage();
  const { code, stderr } = await stage.rig.cli(["run", "true"], { timeoutMs: 200_000 });
  if (code === 0) return stage;
  await stage.close();
  throw new Error(`Cannot open a stage: its first VM ended with ${code}: ${stderr}`);
}

interface Parts {
  readonly folder: string;
  readonly program: string;
  readonly gateway: Gateway;
}

/** An mcp.json in a client's home with that one server, named "capsem"; its path. */
export function writeMcpConfig(home: ClientHome, server: Pick<Connection, "command" | "args">): string {
  const path = join(home.path, "mcp.json");
  const { command, args } = server;
  writeFileSync(path, JSON.stringify({ mcpServers: { capsem: { command, args } } }));
  return path;
}

function connections({ folder, program, gateway }: Parts): Pick<Stage, "connect"> {
  const tap = join(import.meta.dirname, "wire-tap.ts");
  let count = 0;
  return {
    connect: (name) => {
      count += 1;
      const log = join(folder, `${count}-${name}.jsonl`);
      const server = [program, "--gateway-url", gateway.url, "--token-file", gateway.tokenFile];
      return { command: NODE_22, args: [tap, log, ...server], wire: () => readWireLog(log) };
    },
  };
}
