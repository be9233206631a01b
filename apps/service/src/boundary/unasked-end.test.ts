import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createHome, homeLayout } from "../home/layout.ts";
import { nodePowers } from "../powers-node.ts";
import type { VmRecord } from "../vm/record.ts";
import { recover } from "../vm/recovery.ts";
import { Registry } from "../vm/registry.ts";
import { recordUnasked, whileUnasked } from "./unasked-end.ts";

const RECORD: VmRecord = {
  schema: 1,
  id: "vm_abcdefghij234567",
  name: "box",
  state: "running",
  reason: null,
  cpus: 1,
  memory_mib: 512,
  created_at: "2026-01-01T00:00:00.000Z",
  started_at: null,
  failed_at: null,
  image: "sha256:aa",
  env: {},
};

function told() {
  const ends: unknown[] = [];
  const note = (draft: { vm: unknown; row: { facts: object } }, outcome: string) =>
    void ends.push([draft.vm, { ...draft.row.facts, outcome }]);
  return { ends, unasked: recordUnasked({ note } as unknown as Parameters<typeof recordUnasked>[0]) };
}

test("what a lost service did to its VMs is told at the next start, once for each", async () => {
  const home = mkdtempSync(join(tmpdir(), "capsem-recover-"));
  try {
    const layout = homeLayout(home);
    await createHome(layout, process.getuid?.() ?? -1);
    const records: VmRecord[] = [
      RECORD,
      { ...RECORD, id: "vm_bbbbbbbbbbbbbbbb", name: null },
      { ...RECORD, id: "vm_cccccccccccccccc", name: "still", state: "stopped", reason: "service_lost" },
    ];
    for (const record of records) {
      mkdirSync(join(layout.vms, record.id));
      writeFileSync(join(layout.vms, record.id, "vm.json"), JSON.stringify(record));
    }
    const { ends, unasked } = told();
    const powers = nodePowers("unused");
    await recover({ layout, powers, registry: new Registry(layout), log: () => undefined, unasked });
    const why = { image: "sha256:aa", detail: "service_lost", outcome: "done" };
    expect(ends).toHaveLength(2);
    expect(ends).toContainEqual([
      { id: RECORD.id, name: "box", image: "sha256:aa" },
      { action: "stop", vm_name: "box", ...why },
    ]);
    expect(ends).toContainEqual([
      { id: "vm_bbbbbbbbbbbbbbbb", name: null, image: "sha256:aa" },
      { action: "delete", vm_name: null, ...why },
    ]);
    expect(readdirSync(layout.vms)).not.toContain("vm_bbbbbbbbbbbbbbbb");
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});

test("an end that fails is told as failed, and stays the caller's failure", async () => {
  const { ends, unasked } = told();
  const ending = whileUnasked(unasked, [{ record: RECORD }, "delete", "failed"], async () => {
    throw new Error("its files resist");
  });
  await expect(ending).rejects.toThrow("its files resist");
  expect(ends).toMatchObject([[{}, { outcome: "failed", detail: "failed" }]]);
});
