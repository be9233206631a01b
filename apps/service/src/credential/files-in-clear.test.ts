import { appendFileSync, chmodSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";
import { FakeLedger } from "../testing/fake-ledger.ts";
import type { Rig } from "../testing/rig.ts";
import { createVm, useRigs } from "../testing/use-rigs.ts";

const rigWith = useRigs();
const SECRET = "canary-91e0-which-files-hold-it";

/** Files of the home that hold it, with ids left out; docs/credentials.md lists them. */
function holders({ layout: { home } }: Rig): string[] {
  const found: string[] = [];
  for (const entry of readdirSync(home, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    if (!readFileSync(path).includes(SECRET)) continue;
    expect(statSync(path).mode & 0o077, path).toBe(0);
    expect(statSync(dirname(path)).mode & 0o077, path).toBe(0);
    found.push(
      relative(home, path)
        .replace(/vm_[a-z0-9]+/, "ID")
        .replace(/[0-9a-f]{64}/, "REF"),
    );
  }
  return found.sort();
}

async function inject({ client }: Rig, keep: "memory" | "file") {
  const body = { name: "deploy", hosts: [], secret: SECRET, keep };
  const { ref } = (await client.post("/credentials/inject", body)).json<{ ref: string }>();
  expect(ref).toMatch(/^credential:/);
  return () => client.delete(`/credentials/${ref}`);
}

test("what is kept in memory touches no file, what is kept in a file one that only the user can read", async () => {
  const rig = await rigWith({ powers: { startLedger: new FakeLedger().startLedger } });
  const forget = await inject(rig, "memory");
  expect(holders(rig)).toEqual([]);
  expect((await forget()).status).toBe(200);
  const remove = await inject(rig, "file");
  expect(holders(rig)).toEqual(["credentials/REF.json"]);
  expect((await remove()).status).toBe(200);
  expect(holders(rig)).toEqual([]);
});

test("a VM's standing environment is in its record and goes with it; a command's is nowhere", async () => {
  const rig = await rigWith({ powers: { startLedger: new FakeLedger().startLedger } });
  await inject(rig, "memory");
  const id = await createVm(rig, { env: { STANDING: SECRET } });
  const body = { command: `: ${SECRET}`, env: { ONCE: SECRET } };
  expect((await rig.client.post(`/vms/${id}/exec`, body)).status).toBe(200);
  // A record that is being written has another name for a moment.
  await expect.poll(() => holders(rig)).toEqual(["vms/ID/vm.json"]);
  await rig.client.delete(`/vms/${id}/delete`);
  expect(holders(rig)).toEqual([]);
});

test("a rule that was written by hand stays where it was written, and is shown nowhere else", async () => {
  const rig = await rigWith({ powers: { startLedger: new FakeLedger().startLedger } });
  const id = await createVm(rig);
  await inject(rig, "memory");
  const rule = `\n[profiles.rules.mine]\naction = "block"\nmatch = 'process.command.contains("${SECRET}")'\n`;
  appendFileSync(rig.layout.settings, rule);
  chmodSync(rig.layout.settings, 0o600);
  await rig.client.post("/corp/reload");
  const active = join(rig.layout.vms, id, "vm", "active_policy.toml");
  await expect.poll(() => readFileSync(active, "utf8")).toContain("profiles.rules.mine");
  expect(holders(rig)).toEqual(["settings.toml"]);
});
