import { afterEach, expect, vi } from "vitest";
import { type Rig, type RigOptions, startRig } from "./rig.ts";

// Processes start in these tests, on machines that are busy with other ones.
vi.setConfig({ testTimeout: 90_000, hookTimeout: 60_000 });

/** Services that end with the test that started them, with nothing left behind. */
export function useRigs(): (options?: RigOptions) => Promise<Rig> {
  const rigs: Rig[] = [];
  afterEach(async () => {
    // The latest first: an earlier one may own the home that it used.
    const used = rigs.splice(0).reverse();
    for (const rig of used) await rig.close();
    for (const rig of used) expect(rig.processes(), "processes left by the service").toBe(0);
  });
  return async (options = {}) => {
    const rig = await startRig(options);
    rigs.push(rig);
    return rig;
  };
}

export interface VmShown {
  readonly id: string;
  readonly name: string | null;
  readonly state: string;
  readonly reason: string | null;
  readonly health: unknown;
  readonly log_tail?: string[];
}

export async function createVm({ client }: Rig, body: unknown = {}): Promise<string> {
  const reply = await client.post("/vms/create", body);
  expect(reply.status, reply.bytes.toString()).toBe(200);
  return reply.json<VmShown>().id;
}

export async function infoOf({ client }: Rig, id: string): Promise<VmShown> {
  return (await client.get(`/vms/${id}/info`)).json<VmShown>();
}

/** Waits for a state that comes by itself. */
export async function untilState(rig: Rig, id: string, state: string): Promise<VmShown> {
  await expect.poll(async () => (await infoOf(rig, id)).state, { timeout: 30_000 }).toBe(state);
  return infoOf(rig, id);
}

export function errorOf(reply: { json(): unknown }): { kind: string; reason: string; status: number } {
  return (reply.json() as { error: { kind: string; reason: string; status: number } }).error;
}

/** Folders and processes are back at what they were, and no descriptor has come to stay. */
export async function expectBaseline(rig: Rig, before: ReturnType<Rig["counts"]>): Promise<void> {
  await expect
    .poll(
      () => {
        const { folders, processes, descriptors } = rig.counts();
        return { folders, processes, more: Math.max(0, descriptors - before.descriptors) };
      },
      { timeout: 30_000 },
    )
    .toEqual({ folders: before.folders, processes: before.processes, more: 0 });
}
