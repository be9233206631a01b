import type { SpawnPlan } from "@capsem/api";
import { HYPERVISOR_ENVIRONMENT } from "@capsem/vmm";
import { expect, test } from "vitest";
import { nodePowers } from "./powers-node.ts";

test("the hypervisor's launcher is told the environment that a hypervisor has, and no other", () => {
  const descriptors = { rpc: 3, traffic: 4, kernel: 5, initrd: 6, root: 7, agent: 8, memory: 9, state: 10 };
  const words = nodePowers().launcherArguments({
    ...{ kind: "fork", vm_id: "vm_a", cpus: 1, memory_mib: 512, accelerator: "tcg", uid: null, pool: false },
    ...{ qemu_binary: process.execPath, launcher: "/opt/launch", folder: "/home/vms/vm_a", descriptors },
    ...{ disk_capacity_bytes: 512, allow_unconfined: false },
  } satisfies SpawnPlan);
  const variables = words.filter((_word, index) => words[index - 1] === "--env");
  expect(variables).toEqual(
    Object.entries(HYPERVISOR_ENVIRONMENT).map(([name, value]) => `${name}=${value}`),
  );
});
