import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { useRigs } from "../testing/use-rigs.ts";

const rigWith = useRigs();

test("a service that stops while a golden is built does not wait for it, and leaves nothing of it", async () => {
  const rig = await rigWith({ hasGolden: false, script: { hang: "ready", only: ["golden"] } });
  const creating = rig.client.post("/vms/create", {}).catch(() => null);
  await expect.poll(() => rig.processes(), { timeout: 30_000 }).toBeGreaterThan(1);
  const isClosed = rig.service.close().then(() => true);
  const late = new Promise<boolean>((resolve) => {
    // Shorter than a golden may take, and than the whole stop may.
    setTimeout(() => resolve(false), 15_000).unref();
  });
  expect(await Promise.race([isClosed, late])).toBe(true);
  await creating;
  expect(rig.counts()).toMatchObject({ folders: 0, processes: 0 });
  expect(readdirSync(rig.layout.goldens)).toEqual([]);
  expect(rig.log.filter(({ message }) => String(message).startsWith("no golden"))).toEqual([]);
});
