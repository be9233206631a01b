import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isAlive, processesOf, processesOfVm, type Rig, rounds, startRig, until } from "./support/rig.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.stop());

async function infoOf(id: string) {
  return (await rig.client.vms.list()).find((vm) => vm.id === id);
}

test("a retained VM keeps its files and environment over stop and start", async () => {
  const vm = await rig.create({ name: "keeper", env: { PLACE: "hère" } });
  await rig.sh(vm, "echo kept > note; sudo sh -c 'echo sys > /etc/note'");
  await vm.stop();
  expect((await vm.info()).state).toBe("stopped");
  await vm.start();
  expect(await rig.sh(vm, "cat note /etc/note; echo $PLACE; hostname")).toBe("kept\nsys\nhère\nkeeper\n");
  await vm.delete();
});

test("what was fsynced survives kill -9 of the hypervisor, and the reason is said", async () => {
  const vm = await rig.create({ name: "crash" });
  await rig.sh(vm, "echo safe > note; sync note; sync");
  process.kill(processesOfVm(rig.home, vm.id).hypervisor, "SIGKILL");
  await until("the VM is stopped", 5_000, async () => (await infoOf(vm.id))?.state === "stopped");
  expect(await infoOf(vm.id)).toMatchObject({ reason: "hypervisor_exit" });
  await vm.start();
  expect(await rig.sh(vm, "cat note")).toBe("safe\n");
  await vm.delete();
});

test("a temporary VM is gone after stop; names are unique and reusable", async () => {
  const temporary = await rig.create();
  await temporary.stop();
  await expect(temporary.info()).rejects.toMatchObject({ kind: "vm_not_found" });
  const named = await rig.create({ name: "once" });
  await expect(rig.client.vms.create({ name: "once" })).rejects.toMatchObject({ kind: "name_taken" });
  await named.delete();
  await expect(named.delete()).rejects.toMatchObject({ kind: "vm_not_found" });
  const again = await rig.create({ name: "once" });
  await again.delete();
});

test("persist and rename keep a VM under a name", async () => {
  const vm = await rig.create();
  expect(await vm.persist("later")).toMatchObject({ name: "later", state: "running" });
  expect(await vm.rename("latest")).toMatchObject({ name: "latest" });
  await vm.stop();
  expect((await vm.info()).state).toBe("stopped");
  await vm.delete();
});

test("killing an owner or a hypervisor leaves nothing, and list tells the truth within 5 s", async () => {
  for (let round = 0; round < rounds(2, 20); round += 1) {
    for (const role of ["owner", "hypervisor"] as const) {
      const vm = await rig.create();
      const processes = processesOfVm(rig.home, vm.id);
      const waiting = vm.exec({ command: "sleep 60" });
      const ended = expect(waiting).rejects.toMatchObject({ kind: "vm_gone" });
      await until("the command runs", 10_000, async () => (await vm.jobs()).length === 1);
      process.kill(processes[role], "SIGKILL");
      await ended;
      await until("both are gone", 5_000, () => !isAlive(processes.owner) && !isAlive(processes.hypervisor));
      await until("list says failed", 5_000, async () => (await infoOf(vm.id))?.state === "failed");
      const info = await infoOf(vm.id);
      expect(info?.reason).toBe(role === "owner" ? "owner_lost" : "hypervisor_exit");
      await vm.delete();
      expect(existsSync(join(rig.home, "vms", vm.id))).toBe(false);
    }
  }
});

test("a frozen hypervisor or owner is unresponsive within 5 s, delays nobody, and can be deleted", async () => {
  const other = await rig.create();
  for (const role of ["hypervisor", "owner"] as const) {
    const vm = await rig.create();
    const processes = processesOfVm(rig.home, vm.id);
    process.kill(processes[role], "SIGSTOP");
    await until("it is unresponsive", 6_000, async () => {
      const health = (await infoOf(vm.id))?.health;
      return health?.guest === "unresponsive" || health?.owner === "unresponsive";
    });
    const started = performance.now();
    expect((await other.exec({ argv: ["true"] })).exit_code).toBe(0);
    await rig.client.vms.list();
    expect(performance.now() - started).toBeLessThan(3_000);
    const deleting = performance.now();
    await vm.delete();
    expect(performance.now() - deleting).toBeLessThan(5_000);
    expect(isAlive(processes.owner) || isAlive(processes.hypervisor)).toBe(false);
  }
  await other.delete();
});

test("after kill -9 of the service nothing of it is left, and a restart tells the truth", async () => {
  for (let round = 0; round < rounds(2, 20); round += 1) {
    const kept = await rig.create({ name: `kept${round}` });
    await rig.sh(kept, "echo still > note; sync");
    const lost = await rig.create();
    const pids = [kept, lost].flatMap((vm) => Object.values(processesOfVm(rig.home, vm.id)));
    process.kill(rig.servicePid(), "SIGKILL");
    await until("owners and hypervisors are gone", 5_000, () => !pids.some(isAlive));
    await rig.startService();
    const list = await rig.client.vms.list();
    expect(list.find(({ id }) => id === kept.id)).toMatchObject({ state: "stopped", reason: "service_lost" });
    expect(list.some(({ id }) => id === lost.id)).toBe(false);
    await kept.start();
    expect(await rig.sh(kept, "cat note")).toBe("still\n");
    await kept.delete();
  }
});

test("a frozen service is reported with its pid, stop --force works, and SIGCONT heals", async () => {
  process.kill(rig.servicePid(), "SIGSTOP");
  const started = performance.now();
  const { code, stderr } = await rig.cli(["list"]);
  expect(performance.now() - started).toBeLessThan(6_500);
  expect(code).toBe(1);
  expect(stderr).toContain(String(rig.servicePid()));
  process.kill(rig.servicePid(), "SIGCONT");
  await until("the service answers", 5_000, () =>
    rig.client.health().then(
      () => true,
      () => false,
    ),
  );
  process.kill(rig.servicePid(), "SIGSTOP");
  expect(await rig.cli(["service", "stop", "--force"])).toMatchObject({ code: 0 });
  await rig.startService();
});

test("create and delete, over and over, leave no process, file or descriptor", async () => {
  const first = await rig.create();
  await first.delete();
  const descriptors = () => readdirSync(`/proc/${rig.servicePid()}/fd`).length;
  const before = descriptors();
  for (let round = 0; round < rounds(5, 100); round += 1) {
    const vm = await rig.create();
    await vm.exec({ argv: ["true"] });
    await vm.delete();
  }
  await until("descriptors are back", 5_000, () => descriptors() <= before + 1);
  expect(readdirSync(join(rig.home, "vms"))).toEqual([]);
  expect(processesOf(rig.home)).toEqual([rig.servicePid()]);
});
