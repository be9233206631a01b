import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Deferred, defer } from "@capsem/base";
import { afterEach, expect, test } from "vitest";
import { Cgroup } from "./cgroup.ts";
import { TestChild, testLog } from "./test-child.ts";
import { Workload, type WorkloadOptions } from "./workload.ts";

/** A busy machine takes its time; who is done goes on at once. */
const SOON = { interval: 5, timeout: 10_000 };

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** A workload whose first processes, relay and repair helper are in the test's hands. */
function rig(onAsk: (command: string) => Promise<string> = async () => "") {
  const folder = mkdtempSync(join(tmpdir(), "capsem-workload-"));
  folders.push(folder);
  const children: TestChild[] = [];
  const events: string[] = [];
  class TestCgroup extends Cgroup {
    override kill(): boolean {
      for (const child of children) child.kill();
      return true;
    }
  }
  const parts = {
    root: join(folder, "root"),
    disk: "/dev/vdb",
    work: new TestCgroup(folder),
    memoryTotalBytes: 1,
    repair: {
      ask: async (command: string) => {
        events.push(command.split(" ", 1)[0] ?? "");
        return onAsk(command);
      },
    },
    traffic: {
      open: async () => void events.push("open"),
      close: async () => void events.push("close"),
    },
    log: testLog(),
    startInit: () => {
      const child = new TestChild();
      children.push(child);
      return child.asChild;
    },
  };
  return { workload: new Workload(parts as unknown as WorkloadOptions), children, events };
}

/** Says what a first process says, once it was told to start. */
function answerStart(child: TestChild | undefined): void {
  child?.stdin.once("data", () => child.say("ready 77"));
  child?.say("prepared 77");
}

test("a mount that meets a preparation takes its process, and starts no second one", async () => {
  const { workload, children, events } = rig();
  const preparing = workload.prepareInit();
  const mounting = workload.mount(undefined);
  await expect.poll(() => events, SOON).toContain("mount-disk");
  for (const child of children) answerStart(child);
  await Promise.all([preparing, mounting]);
  expect(children.length).toBe(1);
  expect(events.filter((event) => event === "open").length).toBe(1);
  expect(workload.initPid()).toBe(77);
});

test("two preparations at once are one", async () => {
  const { workload, children } = rig();
  const both = [workload.prepareInit(), workload.prepareInit()];
  for (const child of children) child.say("prepared 77");
  await Promise.all(both);
  expect(children.length).toBe(1);
});

test("a first process whose end is heard before its last word is no workload", async () => {
  const { workload, children } = rig();
  const preparing = workload.prepareInit();
  children[0]?.say("prepared 77");
  await preparing;
  const mounting = workload.mount(undefined);
  await expect.poll(() => children[0]?.heard, SOON).toBe("start capsem\n");
  children[0]?.exit(1);
  children[0]?.say("ready 77");
  await expect(mounting).rejects.toMatchObject({ kind: "internal" });
  const again = workload.mount(undefined);
  await expect.poll(() => children.length, SOON).toBe(2);
  answerStart(children[1]);
  await again;
  expect(workload.initPid()).toBe(77);
});

test("an unmount that meets a mount lets no disk stay behind", async () => {
  const mounted: Deferred<string> = defer();
  const { workload, children, events } = rig((command) =>
    command.startsWith("mount-disk") ? mounted.promise : Promise.resolve(""),
  );
  const preparing = workload.prepareInit();
  children[0]?.say("prepared 77");
  await preparing;
  const mounting = workload.mount(undefined);
  await expect.poll(() => events, SOON).toContain("mount-disk");
  const unmounting = workload.unmount();
  mounted.resolve("");
  await expect(mounting).rejects.toMatchObject({ kind: "wrong_state" });
  await unmounting;
  expect(events.at(-1)).toBe("unmount-disk");
  expect(workload.isMounted).toBe(false);
  expect(() => workload.initPid()).toThrow(/not mounted/);
});

test("an unmount ends the process that is being prepared", async () => {
  const { workload, children } = rig();
  const preparing = workload.prepareInit();
  await workload.unmount();
  await preparing;
  expect(children[0]?.signalCode).toBe("SIGKILL");
  expect(() => workload.initPid()).toThrow(/not mounted/);
});
