import { expect, test } from "vitest";
import { confinementState } from "./confinement-state.ts";
import { CONFINEMENT_LIMITS } from "./limits.ts";

const machine = { isEnforced: true, reason: "Landlock and seccomp" };
const vm = (id: string, unconfined: string[] = [], notes: string[] = []) => ({
  id,
  run: { unconfined, notes },
});

test("VMs that are confined add nothing", () => {
  expect(confinementState(machine, [vm("vm_a"), { id: "vm_b", run: null }])).toEqual(machine);
});

test("a VM that runs unconfined is named with what it lacks, and nothing is called enforced then", () => {
  expect(confinementState(machine, [vm("vm_a"), vm("vm_b", ["no Landlock", "no filter"])])).toEqual({
    isEnforced: false,
    reason: "Landlock and seccomp; VM vm_b runs unconfined: no Landlock, no filter",
  });
});

test("a missing second wall is said and is no lack of confinement", () => {
  expect(confinementState(machine, [vm("vm_a"), vm("vm_b", [], ["no network namespace"])])).toEqual({
    isEnforced: true,
    reason: "Landlock and seccomp; 1 of 2 running VMs lack a second wall: no network namespace",
  });
});

test("many VMs are counted, and long words are cut", () => {
  const vms = Array.from({ length: 9 }, (_, at) => vm(`vm_${at}`, ["x".repeat(100_000)]));
  const { reason } = confinementState(machine, vms);
  expect(reason).toContain("9 VMs in all run unconfined");
  expect(reason.length).toBeLessThan(
    2 * CONFINEMENT_LIMITS.vmsNamedMax * CONFINEMENT_LIMITS.wordsCharactersMax,
  );
});
