import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Vm } from "@capsem/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Rig, rounds, startRig } from "./support/rig.ts";

let rig: Rig;
let vm: Vm;
beforeAll(async () => {
  rig = await startRig();
  vm = await rig.create({ name: "files" });
});
afterAll(() => rig.stop());

const contents: readonly [string, Uint8Array][] = [
  ["an empty file", new Uint8Array(0)],
  ["one byte", Buffer.from([0])],
  ["every byte", Buffer.from(Array.from({ length: 256 }, (_, index) => index))],
  ["a mebibyte", randomBytes(1024 * 1024)],
];

test.each(contents)("%s goes in and comes out byte for byte", async (_name, bytes) => {
  await vm.files.write("dir/ファイル ñ.bin", bytes);
  const { size, bytes: back } = await vm.files.read("dir/ファイル ñ.bin");
  expect(size).toBe(bytes.length);
  expect(Buffer.from(back).equals(bytes)).toBe(true);
});

test("a window of a file comes with the true size", async () => {
  await vm.files.write("window", Buffer.from("0123456789"));
  const { size, bytes } = await vm.files.read("window", { offset: 3, length: 4 });
  expect([size, Buffer.from(bytes).toString()]).toEqual([10, "3456"]);
  await vm.files.write("window", Buffer.from("AB"), { offset: 4 });
  expect(Buffer.from((await vm.files.read("window")).bytes).toString()).toBe("0123AB6789");
});

test("a large file is streamed, and memory of the service stays bounded", async () => {
  const bytes = rounds(64, 1024) * 1024 * 1024;
  const chunk = randomBytes(1024 * 1024);
  const sent = createHash("sha256");
  await vm.files.write(
    "large",
    (async function* () {
      for (let done = 0; done < bytes; done += chunk.length) {
        sent.update(chunk);
        yield chunk;
      }
    })(),
  );
  const before = rssBytes(rig.servicePid());
  const { size, body } = await vm.files.readStream("large");
  const received = createHash("sha256");
  for await (const part of body) received.update(part);
  expect(size).toBe(bytes);
  expect(received.digest("hex")).toBe(sent.digest("hex"));
  expect(rssBytes(rig.servicePid()) - before).toBeLessThan(64 * 1024 * 1024);
  await vm.files.remove("large");
});

function rssBytes(pid: number): number {
  const kib = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return Number(kib) * 1024;
}

test.each([
  ["in the middle", 128],
  ["at its end", 95],
])("a file that does not fit is disk_full %s, and what was there before stays", async (_where, mib) => {
  await vm.files.write("/dev/shm/kept", Buffer.from("kept"));
  // Memory files of the guest hold 94 MiB.
  const bytes = Buffer.alloc(mib * 1024 ** 2);
  await expect(vm.files.write("/dev/shm/kept", bytes)).rejects.toMatchObject({ kind: "disk_full" });
  expect(await rig.sh(vm, "cat /dev/shm/kept; ls -A /dev/shm")).toBe("keptkept\n");
});

test("paths are resolved with the user's rights: what the user may not read, the API may not", async () => {
  await expect(vm.files.read("/etc/shadow")).rejects.toMatchObject({ kind: "file_not_permitted" });
  await rig.sh(vm, "ln -sf /etc/shadow sneaky; ln -sfn / root");
  await expect(vm.files.read("sneaky")).rejects.toMatchObject({ kind: "file_not_permitted" });
  await expect(vm.files.write("root/etc/passwd", Buffer.from("x"))).rejects.toMatchObject({
    kind: "file_not_permitted",
  });
});

test("a path that climbs stays in the workload root, and the agent's own files are not there", async () => {
  const { bytes } = await vm.files.read("../../../../etc/hostname");
  expect(Buffer.from(bytes).toString().trim()).toBe("files");
  await expect(vm.files.stat("../../../../proc/1/root/opt/capsem/guest.cjs")).rejects.toMatchObject({
    kind: expect.stringMatching(/^file_/),
  });
});

test("list, stat, mkdir, rename and remove", async () => {
  await vm.files.mkdir("a/b", { parents: true });
  await vm.files.write("a/b/c", Buffer.from("hello"), { mode: 0o600 });
  expect(await vm.files.stat("a/b/c")).toMatchObject({ type: "file", size: 5, mode: 0o600, uid: 1000 });
  await vm.files.rename("a/b/c", "a/d");
  const { entries } = await vm.files.list("a");
  expect(entries.map(({ name, type }) => `${type} ${name}`).sort()).toEqual(["directory b", "file d"]);
  await expect(vm.files.remove("a")).rejects.toMatchObject({ kind: expect.stringMatching(/^file_/) });
  await vm.files.remove("a", { recursive: true });
  await expect(vm.files.stat("a")).rejects.toMatchObject({ kind: "file_not_found" });
  await expect(vm.files.mkdir("no/parent")).rejects.toMatchObject({ kind: "file_not_found" });
});

test("a large directory is listed in pages", async () => {
  await rig.sh(vm, "mkdir many && cd many && seq 1 700 | xargs touch");
  const first = await vm.files.list("many", { limit: 200 });
  expect([first.entries.length, first.more]).toEqual([200, true]);
  const names = new Set<string>();
  for (let offset = 0; ; ) {
    const page = await vm.files.list("many", { offset, limit: 256 });
    for (const { name } of page.entries) names.add(name);
    offset += page.entries.length;
    if (!page.more) break;
  }
  expect(names.size).toBe(700);
});

test("a directory tree copies both ways with cp, with modes, links and unicode names", async () => {
  const tree = join(rig.home, "träe");
  mkdirSync(join(tree, "deep"), { recursive: true });
  writeFileSync(join(tree, "deep", "exec"), "#!/bin/sh\n", { mode: 0o755 });
  for (let index = 0; index < rounds(300, 10_000); index += 1)
    writeFileSync(join(tree, `f${index}`), `${index}`);
  expect(await rig.cli(["cp", tree, "files:copied"], { timeoutMs: 120_000 })).toMatchObject({ code: 0 });
  expect(await rig.sh(vm, "stat -c %a copied/deep/exec; cat copied/f17; echo; ls copied | wc -l")).toBe(
    `755\n17\n${rounds(300, 10_000) + 1}\n`,
  );
  await rig.sh(vm, "ln -s f17 copied/link; echo new > copied/ñ");
  const back = join(rig.home, "back");
  expect(await rig.cli(["cp", "files:copied", back], { timeoutMs: 120_000 })).toMatchObject({ code: 0 });
  expect(readFileSync(join(back, "link"), "utf8")).toBe("17");
  expect(readFileSync(join(back, "ñ"), "utf8")).toBe("new\n");
});
