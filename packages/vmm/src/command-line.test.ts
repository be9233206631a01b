import { expect, test } from "vitest";
import { type CommandLineOptions, planCommandLine } from "./command-line.ts";

const OPTIONS: CommandLineOptions = {
  kind: "fork",
  vmId: "vm_abcdefghijklmnop",
  cpus: 1,
  memoryMib: 512,
  accelerator: "tcg",
  diskCapacityBytes: 64 * 1024 ** 3,
  descriptors: { disk: 20 },
};

const CASES: Record<string, CommandLineOptions> = {
  fork: OPTIONS,
  golden: { ...OPTIONS, kind: "golden", descriptors: {} },
  cold: { ...OPTIONS, kind: "cold", cpus: 2 },
  kvm: { ...OPTIONS, accelerator: "kvm" },
};

test.each(Object.entries(CASES))("the command line of %s is the recorded one", async (name, options) => {
  const lines = planCommandLine(options).join("\n").replaceAll("\n-", "\n\n-");
  await expect(`${lines}\n`).toMatchFileSnapshot(`command-line.golden.${name}.txt`);
});

test("no command line names a path but descriptors and what every kind shares", () => {
  for (const options of Object.values(CASES)) {
    const paths = planCommandLine(options).flatMap((word) => word.match(/\/[a-z][a-z0-9/]*/g) ?? []);
    expect(paths.filter((path) => !/^\/(proc\/self\/fd|dev\/fdset)\/\d+$/.test(path))).toEqual([]);
  }
});

test("golden and fork have the same devices in the same order", () => {
  const devices = (kind: "golden" | "fork" | "cold") =>
    planCommandLine({ ...OPTIONS, kind }).filter((_, index, words) =>
      ["-device", "-machine", "-cpu", "-m", "-smp"].includes(words[index - 1] ?? ""),
    );
  expect(devices("fork")).toEqual(devices("golden"));
  expect(devices("cold")).toEqual(devices("golden"));
});

test("a fork's memory is private, and a golden's is shared", () => {
  const memory = (kind: "golden" | "fork") =>
    planCommandLine({ ...OPTIONS, kind }).find((word) => word.startsWith("memory-backend"));
  expect(memory("fork")).toContain("share=off");
  expect(memory("golden")).toContain("share=on");
});

const BAD: Record<string, Partial<CommandLineOptions>> = {
  "a comma in the id": { vmId: "vm,debug-threads=on" },
  "an empty id": { vmId: "" },
  "no CPU": { cpus: 0 },
  "half a CPU": { cpus: 0.5 },
  "no memory": { memoryMib: 0 },
  "memory that is no number": { memoryMib: Number.NaN },
  "a disk of nothing": { diskCapacityBytes: 0 },
  "a disk of half a sector": { diskCapacityBytes: 1024 ** 3 + 1 },
};

test.each(Object.entries(BAD))("%s is a bug", (_name, change) => {
  expect(() => planCommandLine({ ...OPTIONS, ...change })).toThrow("bad");
});
