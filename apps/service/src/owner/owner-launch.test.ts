import type { SpawnPlan } from "@capsem/api";
import { expect, test } from "vitest";
import { type OwnerProgram, ownerWords } from "./owner-launch.ts";

const PROGRAM: OwnerProgram = {
  nodeBinary: "/opt/node",
  bundle: "/opt/owner.cjs",
  grants: { read: ["/opt/lib", "/opt/owner.cjs"], exec: ["/opt/node"], write: ["/dev/null"] },
  servicePid: 42,
  isRoot: false,
};

const PLAN: SpawnPlan = {
  kind: "fork",
  vm_id: "vm_a",
  cpus: 1,
  memory_mib: 512,
  accelerator: "tcg",
  // Any binary: its libraries are looked up on this machine.
  qemu_binary: process.execPath,
  launcher: "/opt/launch",
  uid: null,
  folder: "/home/vms/vm_a",
  descriptors: {
    rpc: 3,
    traffic: 11,
    kernel: 4,
    initrd: 5,
    root: 6,
    agent: 7,
    disk: 8,
    memory: 9,
    state: 10,
  },
  pool: false,
  disk_capacity_bytes: 1,
  allow_unconfined: false,
};

function optionOf(plan: Partial<SpawnPlan>, program: Partial<OwnerProgram> = {}) {
  const { file, args } = ownerWords({ ...PROGRAM, ...program }, { ...PLAN, ...plan });
  const end = args.indexOf("--");
  return {
    file,
    command: args.slice(end + 1),
    values: (option: string) =>
      args.slice(0, end).flatMap((word, index) => (word === option ? [args[index + 1] ?? ""] : [])),
    has: (option: string) => args.slice(0, end).includes(option),
  };
}

test("an owner is the launcher's: it dies with the service, keeps its plan's descriptors, writes in one folder", () => {
  const { file, command, values } = optionOf({});
  expect(file).toBe("/opt/launch");
  expect(command).toEqual(["/opt/node", "/opt/owner.cjs"]);
  expect(values("--parent")).toEqual(["42"]);
  expect(values("--keep-fd")).toEqual(["3", "4", "5", "6", "7", "8", "9", "10", "11"]);
  expect([...new Set(values("--write"))]).toEqual(["/dev/null", "/home/vms/vm_a/jobs"]);
  expect(values("--exec")).toContain("/opt/launch");
  expect(values("--read").some((path) => "/home/vms/vm_a/vm.json".startsWith(path))).toBe(false);
  expect(values("--landlock")).toEqual(["require"]);
});

test("only what a hypervisor opens by itself is granted by descriptor: a kernel where there is no golden", () => {
  expect(optionOf({}).values("--read-fd")).toEqual([]);
  expect(optionOf({}).values("--write-fd")).toEqual(["9"]);
  const { memory: _memory, state: _state, ...cold } = PLAN.descriptors;
  expect(optionOf({ kind: "cold", descriptors: cold }).values("--read-fd")).toEqual(["4", "5"]);
  expect(optionOf({ kind: "cold", descriptors: cold }).values("--write-fd")).toEqual([]);
  expect(optionOf({ kind: "golden" }).values("--read-fd")).toEqual(["4", "5"]);
});

test("root's owner keeps three capabilities, anybody else's none", () => {
  expect(optionOf({}).has("--as-root-ok")).toBe(false);
  expect(optionOf({}).values("--capability")).toEqual([]);
  const asRoot = optionOf({ uid: 200_001 }, { isRoot: true });
  expect(asRoot.has("--as-root-ok")).toBe(true);
  expect(asRoot.values("--capability")).toEqual(["setuid", "setgid", "kill"]);
});

test("a machine that may go unconfined still tries", () => {
  expect(optionOf({ allow_unconfined: true }).values("--landlock")).toEqual(["try"]);
});
