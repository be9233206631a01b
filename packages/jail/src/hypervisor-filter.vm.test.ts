import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, copyFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { builtPath, type Launch, launchWords, native, qemuReadPaths, qemuWritePaths } from "@capsem/native";
import { expect, onTestFinished, test } from "vitest";
import { hypervisorFilter } from "./hypervisor-filter.ts";

const QEMU = "/usr/bin/qemu-system-x86_64";
const usable = process.getuid?.() === 0 && existsSync(QEMU) && native().landlockAbi() > 0;
if (!usable)
  console.log("skipped: QEMU under its filter, because it needs root, Landlock and qemu-system-x86_64");
const confined = test.skipIf(!usable);

const USER = 200_001;
const MACHINE = [
  ...[
    "-M",
    "q35,usb=off,sata=off,smbus=off",
    "-accel",
    "tcg,thread=multi,tb-size=32",
    "-smp",
    "2",
    "-m",
    "64M",
  ],
  ...["-nodefaults", "-no-user-config", "-nographic", "-qmp", "stdio"],
  ...["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"],
];

/** A Unix socket that its user alone may connect to, and that user is QEMU's. */
async function ownSocket() {
  const folder = mkdtempSync(join(tmpdir(), "qmp-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o755);
  const path = join(folder, "service.sock");
  let count = 0;
  const server = createServer((socket) => {
    count += 1;
    socket.on("error", () => socket.destroy());
  });
  server.listen(path);
  await once(server, "listening");
  onTestFinished(() => void server.close());
  chownSync(path, USER, USER);
  chmodSync(path, 0o600);
  const launcher = join(folder, "capsem-launch");
  copyFileSync(builtPath("capsem-launch"), launcher);
  chmodSync(launcher, 0o755);
  return { path, launcher, count: () => count };
}

/** Who controls QEMU asks it to do this, then to go on and to end. The answers, one a command. */
async function tell(launcher: string, command: object, change: Partial<Launch>): Promise<unknown[]> {
  const words = launchWords(
    {
      ...{ parentPid: process.pid, command: QEMU, args: MACHINE, user: { uid: USER, gid: USER } },
      grants: { ...qemuReadPaths(QEMU), write: qemuWritePaths("tcg") },
      ...change,
    },
    launcher,
  );
  const child = spawn(words.file, words.args, {
    stdio: ["pipe", "pipe", "inherit"],
    env: {},
    timeout: 30_000,
  });
  const commands = [
    { execute: "qmp_capabilities" },
    command,
    { execute: "query-status" },
    { execute: "quit" },
  ];
  child.stdin.end(commands.map((each) => JSON.stringify(each)).join(""));
  let said = "";
  child.stdout.on("data", (data) => {
    said += data;
  });
  expect(await once(child, "close")).toEqual([0, null]);
  const lines = said
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { return?: unknown; error?: unknown });
  return lines.flatMap((line) => line.return ?? line.error ?? []);
}

const DIALS: Readonly<Record<string, (path: string) => object>> = {
  "a socket as a device": (path) => ({
    execute: "chardev-add",
    arguments: {
      id: "out",
      backend: { type: "socket", data: { addr: { type: "unix", data: { path } }, server: false } },
    },
  }),
  "a socket to listen on": () => ({
    execute: "chardev-add",
    arguments: {
      id: "in",
      backend: {
        type: "socket",
        data: { addr: { type: "inet", data: { host: "127.0.0.1", port: "0" } }, server: true, wait: false },
      },
    },
  }),
};

confined.each(Object.entries(DIALS))(
  "QEMU that is told to open %s does, and is refused under its filter",
  async (_, dial) => {
    const { path, launcher, count } = await ownSocket();
    const filter = hypervisorFilter(process.arch) ?? new Uint8Array();
    // Landlock forbids to bind a TCP port from its version 4 on: not the wall that is tried here.
    const landlock = dial === DIALS["a socket to listen on"] ? "off" : "require";
    const free = await tell(launcher, dial(path), { landlock });
    expect(free[1]).not.toHaveProperty("desc");
    if (landlock === "require") await expect.poll(count).toBe(1);
    const before = count();
    // Where no network namespace can be made, too.
    for (const netNamespace of ["require", "off"] as const) {
      const answers = await tell(launcher, dial(path), { landlock, netNamespace, filter });
      expect(answers[1]).toMatchObject({ desc: expect.stringContaining("Operation not permitted") });
      expect(answers[2]).toMatchObject({ status: "running" });
    }
    expect(count()).toBe(before);
  },
);
