import { spawn } from "node:child_process";
import { expect, test } from "vitest";
import { Repair, RepairRefusal } from "./repair.ts";
import { TestChild } from "./test-child.ts";

/** A helper in shell that answers by the table of its script. */
function repairBy(script: string): { repair: Repair; starts: () => number } {
  let starts = 0;
  const repair = new Repair(() => {
    starts += 1;
    return spawn("sh", ["-c", script], { stdio: ["pipe", "pipe", "inherit"] });
  });
  return { repair, starts: () => starts };
}

const echo = `while read -r verb rest; do case $verb in
sync) echo ok;;
block-size) echo "ok 512";;
unmount-disk) echo "lazy disk";;
repair) echo "error entropy EPERM Operation not permitted";;
odd) echo what;;
die) exit 3;;
esac; done`;

test("answers come in order, one helper for all", async () => {
  const { repair, starts } = repairBy(echo);
  expect(await Promise.all([repair.ask("sync"), repair.ask("block-size /dev/vdb")])).toEqual(["", "512"]);
  expect(await repair.ask("unmount-disk")).toBe("lazy disk");
  expect(starts()).toBe(1);
});

test("a refusal has the helper's words", async () => {
  const { repair } = repairBy(echo);
  const refusal = await repair.ask("repair 1 2").catch((error: unknown) => error);
  expect(refusal).toBeInstanceOf(RepairRefusal);
  expect(refusal).toMatchObject({ report: { step: "entropy", errno: "EPERM" } });
});

test("a helper that ends fails what waits, and the next question starts another", async () => {
  const { repair, starts } = repairBy(echo);
  await expect(Promise.all([repair.ask("die"), repair.ask("sync")])).rejects.toMatchObject({
    kind: "internal",
  });
  expect(await repair.ask("sync")).toBe("");
  expect(starts()).toBe(2);
});

test("a helper that is silent is given up", async () => {
  const { repair } = repairBy(echo);
  await expect(repair.ask("nothing", 20)).rejects.toThrow(/did not answer in 20 ms/);
});

test("an answer that is none of the protocol is an error", async () => {
  const { repair } = repairBy(echo);
  await expect(repair.ask("odd")).rejects.toThrow(/malformed/);
});

test("after a helper that is silent the next question has another", async () => {
  const { repair, starts } = repairBy(echo);
  await expect(repair.ask("nothing", 20)).rejects.toThrow(/did not answer in 20 ms/);
  expect(await repair.ask("block-size /dev/vdb")).toBe("512");
  expect(starts()).toBe(2);
});

test("what a helper said before its end, and is read after it, answers no other one's question", async () => {
  const children: TestChild[] = [];
  const repair = new Repair(() => {
    const child = new TestChild();
    children.push(child);
    return child.asChild;
  });
  const first = repair.ask("block-size /dev/vdb");
  children[0]?.exit(1);
  await expect(first).rejects.toMatchObject({ kind: "internal" });
  const second = repair.ask("sync");
  children[0]?.say("ok 512");
  setImmediate(() => children[1]?.say("ok"));
  expect(await second).toBe("");
});
