import { expect, test } from "vitest";
import { parseArguments } from "./arguments.ts";

test("a guest gives no options and has the guest's places", () => {
  expect(parseArguments([])).toMatchObject({
    control: "/dev/virtio-ports/capsem.control",
    bulk: "/dev/virtio-ports/capsem.bulk",
    helper: "/opt/capsem/capsem-helper",
    workloadRoot: "/mnt/root",
    disk: "/dev/vdb",
  });
});

test("a place can be another", () => {
  expect(parseArguments(["--bulk", "/x"]).bulk).toBe("/x");
});

test.each([[["--nothing", "x"]], [["--bulk"]], [["/x"]], [["__proto__", "x"]]])("%j is refused", (args) => {
  expect(() => parseArguments(args)).toThrow(/^Cannot start/);
});
