import { existsSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { builtPath } from "@capsem/native";
import { afterEach, expect } from "vitest";
import type { Powers } from "../powers.ts";
import { startOwner } from "../powers-node.ts";
import { bundled } from "./bundle.ts";
import type { Reply } from "./client.ts";
import { pidsWith, type Rig, type RigOptions } from "./rig.ts";
import { useRigs } from "./use-rigs.ts";

export interface FakeWorkers {
  readonly startWorker: Powers["startWorker"];
  /** Kinds and scopes that were started, in order. */
  readonly started: string[];
  /** What servers list from now on. */
  tools(list: readonly { readonly name: string }[]): void;
  /** Faults of those that start from now on, by their words in `fake-worker.ts`. */
  script(...words: string[]): void;
}

/** Fake workers as child processes, with a folder for what their servers list. */
export function fakeWorkers(folder: string): FakeWorkers {
  const program = bundled("fake-worker");
  // A bundle looks for what is built beside it.
  const beside = join(dirname(program), "native.node");
  if (!existsSync(beside)) symlinkSync(builtPath("native.node"), beside);
  const list = join(folder, "fake-tools.json");
  const state = { script: "" };
  const started: string[] = [];
  const tools = (all: readonly { readonly name: string }[]) => writeFileSync(list, JSON.stringify(all));
  tools([]);
  return {
    started,
    tools,
    script(...words) {
      state.script = words.join(",");
    },
    startWorker(plan, descriptors) {
      started.push(`${plan.kind} ${plan.scope}`);
      return startOwner({ file: process.execPath, args: [program] }, descriptors, {
        FAKE_WORKER_SCRIPT: state.script,
        FAKE_WORKER_TOOLS: list,
      });
    },
  };
}

export interface ToolRig {
  readonly rig: Rig;
  readonly workers: FakeWorkers;
  /** Of a tool of ours, from the host. */
  call(tool: string, more?: Readonly<Record<string, unknown>>): Promise<Reply>;
  rule(name: string, rule: Readonly<Record<string, unknown>>): Promise<void>;
}

/** Services whose tools may be called, with fake workers; none of them outlives its test. */
export function useToolRigs(): (options?: RigOptions) => Promise<ToolRig> {
  const folders: string[] = [];
  // Registered first, it comes last: the services have ended.
  afterEach(() => {
    for (const folder of folders.splice(0)) {
      expect(pidsWith(folder), "workers left by the service").toEqual([]);
      rmSync(folder, { recursive: true, force: true });
    }
  });
  const rigWith = useRigs();
  return async (options = {}) => {
    const folder = realpathSync(mkdtempSync(join(tmpdir(), "capsem-workers-")));
    folders.push(folder);
    const workers = fakeWorkers(folder);
    const rig = await rigWith({
      ...options,
      powers: { startWorker: workers.startWorker, ...options.powers },
    });
    const rule = async (name: string, given: Readonly<Record<string, unknown>>) => {
      const reply = await rig.client.put(`/rules/${name}`, given);
      expect(reply.status, reply.bytes.toString()).toBe(200);
    };
    await rule("tools", { action: "allow", match: 'event.type == "mcp.tool_call"', priority: 1_000 });
    const call = (tool: string, more: Readonly<Record<string, unknown>> = {}) =>
      rig.client.post("/mcp/call", { server_id: "local", tool_id: tool, ...more });
    return { rig, workers, call, rule };
  };
}
