import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Rig } from "./testing/rig.ts";
import { createVm, errorOf, infoOf, useRigs, type VmShown } from "./testing/use-rigs.ts";

const rigWith = useRigs();

/** A stopped VM named "odd" whose record was spoiled while no service ran. */
async function spoiled(spoil: (record: string, folder: string) => void): Promise<{ rig: Rig; id: string }> {
  const first = await rigWith();
  const id = await createVm(first, { name: "odd" });
  await first.client.post(`/vms/${id}/stop`);
  await first.service.close();
  const folder = `${first.layout.vms}/${id}`;
  spoil(`${folder}/vm.json`, folder);
  return { rig: await rigWith({ home: first.layout.home }), id };
}

const cut = (record: string) => writeFileSync(record, readFileSync(record, "utf8").slice(0, 120));

test("a VM whose record is cut is listed as failed, by its name, with the reason", async () => {
  const { rig, id } = await spoiled(cut);
  const { vms } = (await rig.client.get("/vms/list")).json<{ vms: VmShown[] }>();
  expect(vms).toMatchObject([{ id, name: "odd", state: "failed", reason: "record_unreadable" }]);
  expect(vms[0]?.log_tail?.[0]).toContain("it is not JSON");
  expect(errorOf(await rig.client.post("/vms/create", { name: "odd" })).kind).toBe("name_taken");
});

test("it cannot be started, renamed or purged, only deleted, and then its name is free", async () => {
  const { rig, id } = await spoiled(cut);
  const path = `${rig.layout.vms}/${id}`;
  const before = readFileSync(`${path}/vm.json`, "utf8");
  expect(errorOf(await rig.client.post(`/vms/${id}/start`)).reason).toContain("its record cannot be read");
  expect(errorOf(await rig.client.post(`/vms/${id}/rename`, { name: "other" })).kind).toBe("wrong_state");
  expect((await rig.client.post("/purge")).json()).toEqual({ deleted: [] });
  rig.advance(24 * 3600_000);
  await rig.service.sweep.pass();
  // What a person might still repair is as it was.
  expect(readFileSync(`${path}/vm.json`, "utf8")).toBe(before);
  expect(existsSync(`${path}/disk.qcow2`)).toBe(true);
  expect((await rig.client.delete(`/vms/${id}/delete`)).status).toBe(200);
  expect(existsSync(path)).toBe(false);
  await createVm(rig, { name: "odd" });
});

test.each([
  { what: "empty", spoil: (record: string) => writeFileSync(record, "") },
  { what: "of another shape", spoil: (record: string) => writeFileSync(record, '{"schema":9}') },
  {
    what: "of another VM",
    spoil: (record: string) =>
      writeFileSync(record, readFileSync(record, "utf8").replace(/vm_\w+/, "vm_aaaaaaaaaaaaaaaa")),
  },
  {
    what: "a folder",
    spoil: (record: string) => {
      rmSync(record);
      mkdirSync(record);
    },
  },
  { what: "closed to us", spoil: (record: string) => chmodSync(record, 0) },
  {
    what: "in a folder that is a file",
    spoil: (_record: string, folder: string) => {
      rmSync(folder, { recursive: true });
      writeFileSync(folder, "x");
    },
  },
])("a record that is $what is a failed VM, which can be deleted", async ({ what, spoil }) => {
  const { rig, id } = await spoiled(spoil);
  // The administrator reads closed files too.
  if (what === "closed to us" && process.getuid?.() === 0)
    expect((await infoOf(rig, id)).state).toBe("stopped");
  else expect(await infoOf(rig, id)).toMatchObject({ state: "failed", reason: "record_unreadable" });
  expect((await rig.client.delete(`/vms/${id}/delete`)).status).toBe(200);
  expect(rig.counts().folders).toBe(0);
});

test("two records of one name do not keep the service from starting", async () => {
  const first = await rigWith();
  const ids = [await createVm(first, { name: "one" }), await createVm(first, { name: "two" })];
  for (const id of ids) await first.client.post(`/vms/${id}/stop`);
  await first.service.close();
  const record = `${first.layout.vms}/${ids[1]}/vm.json`;
  writeFileSync(record, readFileSync(record, "utf8").replace('"two"', '"one"'));
  const second = await rigWith({ home: first.layout.home });
  const shown = await Promise.all(ids.map((id) => infoOf(second, id)));
  expect(shown.map(({ name }) => name).sort()).toEqual([null, "one"].sort());
  expect(shown.map(({ state }) => state).sort()).toEqual(["failed", "stopped"]);
});
