import { spawnSync } from "node:child_process";
import {
  closeSync,
  fstatSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Bug, Failure } from "@capsem/base";
import { beforeAll, expect, test } from "vitest";
import { loadNative, type Native, SEAL } from "./native.ts";
import { buildFixture, distDir, kindOf } from "./native-fixture.ts";

let native: Native;
const hasPython = spawnSync("python3", ["-c", "import socket; socket.send_fds"]).status === 0;
if (!hasPython) console.log("skipped: what needs a hostile peer, because python3 is not installed");

beforeAll(async () => {
  await buildFixture();
  native = loadNative(join(distDir, "native.node"));
}, 60_000);

function openDescriptors(): number {
  return readdirSync("/proc/self/fd").length;
}

function python(program: string, fd: number): { status: number | null; stdout: string } {
  const { status, stdout } = spawnSync("python3", ["-c", program], {
    stdio: ["ignore", "pipe", "inherit", fd],
    encoding: "utf8",
    timeout: 10_000,
  });
  return { status, stdout };
}

test("a memfd has its size and takes writes until it is sealed", () => {
  const fd = native.memfdCreate("ram", 8192);
  expect(fstatSync(fd).size).toBe(8192);
  expect(native.getSeals(fd)).toBe(0);
  writeSync(fd, "before", 0);
  native.addSeals(fd, SEAL.write | SEAL.shrink | SEAL.grow | SEAL.seal);
  expect(native.getSeals(fd)).toBe(15);
  expect(kindOf(() => writeSync(fd, "after", 0))).toBe("EPERM");
  expect(kindOf(() => ftruncateSync(fd, 0))).toBe("EPERM");
  expect(kindOf(() => native.addSeals(fd, SEAL.futureWrite))).toBe("EPERM");
  native.closeDescriptor(fd);
});

test.skipIf(!hasPython)("a sealed memfd refuses a writable shared mapping and permits a private one", () => {
  const program = (flags: string) =>
    `import mmap\nm = mmap.mmap(3, 4096, flags=mmap.${flags}, prot=mmap.PROT_READ | mmap.PROT_WRITE)\nm[0] = 1`;
  const fd = native.memfdCreate("ram", 4096);
  expect(python(program("MAP_SHARED"), fd).status).toBe(0);
  native.addSeals(fd, SEAL.write);
  const refused = python(
    `try:\n ${program("MAP_SHARED").replaceAll("\n", "\n ")}\nexcept PermissionError: print("refused")`,
    fd,
  );
  expect(refused.stdout).toBe("refused\n");
  expect(python(program("MAP_PRIVATE"), fd).status).toBe(0);
  native.closeDescriptor(fd);
});

test("descriptors are close-on-exec", () => {
  const fds = [
    native.memfdCreate("ram", 0),
    ...native.socketPair("stream"),
    ...native.socketPair("seqpacket"),
  ];
  const child = spawnSync("ls", ["/proc/self/fd"], { encoding: "utf8" });
  const open = new Set(child.stdout.split("\n").map(Number));
  for (const fd of fds) expect(open.has(fd)).toBe(false);
  for (const fd of fds) native.closeDescriptor(fd);
});

test("a sparse file is copied without its holes", () => {
  const folder = mkdtempSync(join(tmpdir(), "native-"));
  const source = openSync(join(folder, "source"), "w+");
  const sizeBytes = 64 * 1024 * 1024;
  ftruncateSync(source, sizeBytes);
  writeSync(source, Buffer.alloc(300_000, 7), 0, 300_000, 1024 * 1024);
  writeSync(source, "end", sizeBytes - 3);
  const target = native.memfdCreate("ram", sizeBytes);
  const copied = native.copyFileInto(source, target, sizeBytes);
  expect(copied).toBeGreaterThanOrEqual(300_003);
  expect(copied).toBeLessThan(1024 * 1024);
  expect(fstatSync(target).blocks * 512).toBeLessThan(1024 * 1024);
  expect(contentOf(target, sizeBytes).equals(contentOf(source, sizeBytes))).toBe(true);
  closeSync(source);
  native.closeDescriptor(target);
  rmSync(folder, { recursive: true });
});

function contentOf(fd: number, sizeBytes: number): Buffer {
  const content = Buffer.alloc(sizeBytes);
  expect(readSync(fd, content, 0, sizeBytes, 0)).toBe(sizeBytes);
  return content;
}

test("a copy stops at the size that was asked for, also within data", () => {
  const source = native.memfdCreate("source", 10_000);
  writeSync(source, Buffer.alloc(10_000, 1), 0, 10_000, 0);
  const target = native.memfdCreate("target", 10_000);
  expect(native.copyFileInto(source, target, 5000)).toBe(5000);
  const content = contentOf(target, 10_000);
  expect(content.subarray(0, 5000).every((byte) => byte === 1)).toBe(true);
  expect(content.subarray(5000).every((byte) => byte === 0)).toBe(true);
  native.closeDescriptor(source);
  native.closeDescriptor(target);
});

test("a copy refuses a source that is too short, and a sealed target", () => {
  const source = native.memfdCreate("source", 100);
  writeSync(source, Buffer.alloc(100, 1), 0, 100, 0);
  const target = native.memfdCreate("target", 200);
  expect(kindOf(() => native.copyFileInto(source, target, 200))).toBe("ENODATA");
  native.addSeals(target, SEAL.write);
  expect(kindOf(() => native.copyFileInto(source, target, 100))).toBe("EPERM");
  native.closeDescriptor(source);
  native.closeDescriptor(target);
});

for (const type of ["stream", "seqpacket"] as const) {
  test(`a memfd passes over a ${type} pair with its payload and content`, () => {
    const [left, right] = native.socketPair(type);
    const fds = Array.from({ length: 16 }, (_, index) => {
      const fd = native.memfdCreate(`ram${index}`, 16);
      writeSync(fd, String(index), 0);
      return fd;
    });
    native.sendDescriptors(left, Buffer.from("label"), fds);
    for (const fd of fds) native.closeDescriptor(fd);
    const { payload, fds: received } = native.receiveDescriptors(right, 100);
    expect(Buffer.from(payload).toString()).toBe("label");
    expect(received.length).toBe(16);
    expect(contentOf(received[15] ?? -1, 16).toString("latin1")).toBe(`15${"\0".repeat(14)}`);
    for (const fd of [...received, left, right]) native.closeDescriptor(fd);
  });
}

test("a payload without descriptors passes, and a closed peer is an empty payload", () => {
  const [left, right] = native.socketPair("stream");
  native.sendDescriptors(left, Buffer.from("bare"), []);
  expect(native.receiveDescriptors(right, 100)).toEqual({ payload: Buffer.from("bare"), fds: [] });
  native.closeDescriptor(left);
  expect(native.receiveDescriptors(right, 100)).toEqual({ payload: Buffer.alloc(0), fds: [] });
  expect(kindOf(() => native.sendDescriptors(right, Buffer.from("x"), []))).toBe("EPIPE");
  native.closeDescriptor(right);
});

test("a message that is longer than asked for is refused and its descriptors are closed", () => {
  const [left, right] = native.socketPair("seqpacket");
  const fd = native.memfdCreate("ram", 16);
  const before = openDescriptors();
  native.sendDescriptors(left, Buffer.alloc(100), [fd, fd, fd]);
  expect(kindOf(() => native.receiveDescriptors(right, 10))).toBe("payload_truncated");
  expect(openDescriptors()).toBe(before);
  for (const open of [fd, left, right]) native.closeDescriptor(open);
});

test.skipIf(!hasPython)(
  "a peer that sends too many descriptors is refused and all of them are closed",
  () => {
    const [left, right] = native.socketPair("stream");
    const send = (count: number) =>
      python(`import socket\ns = socket.socket(fileno=3)\nsocket.send_fds(s, [b"x"], [0] * ${count})`, left);
    expect(send(16).status).toBe(0);
    const { fds } = native.receiveDescriptors(right, 10);
    expect(fds.length).toBe(16);
    for (const fd of fds) native.closeDescriptor(fd);
    const before = openDescriptors();
    for (const count of [17, 100, 253]) {
      expect(send(count).status).toBe(0);
      expect(kindOf(() => native.receiveDescriptors(right, 10))).toBe("descriptors_truncated");
    }
    expect(openDescriptors()).toBe(before);
    native.closeDescriptor(left);
    native.closeDescriptor(right);
  },
);

test("a silent or a full peer ends the wait in time", () => {
  const [left, right] = native.socketPair("stream");
  expect(kindOf(() => native.receiveDescriptors(right, 10, 0))).toBe("EAGAIN");
  expect(kindOf(() => native.receiveDescriptors(right, 10, 20))).toBe("EAGAIN");
  const fill = () => {
    for (let i = 0; i < 100; i++) native.sendDescriptors(left, Buffer.alloc(65_536), [], 20);
  };
  expect(kindOf(fill)).toBe("EAGAIN");
  native.closeDescriptor(left);
  native.closeDescriptor(right);
});

test("the peer of a pair is this process, and what is no socket has none", () => {
  const [left, right] = native.socketPair("stream");
  expect(native.peerCredentials(left)).toEqual({
    pid: process.pid,
    uid: process.getuid?.(),
    gid: process.getgid?.(),
  });
  const memfd = native.memfdCreate("ram", 0);
  expect(kindOf(() => native.peerCredentials(memfd))).toBe("ENOTSOCK");
  for (const fd of [left, right, memfd]) native.closeDescriptor(fd);
});

test("a closed descriptor is refused everywhere by the kernel's name for it", () => {
  const fd = native.memfdCreate("ram", 0);
  native.closeDescriptor(fd);
  const calls: (() => unknown)[] = [
    () => native.closeDescriptor(fd),
    () => native.addSeals(fd, SEAL.write),
    () => native.getSeals(fd),
    () => native.copyFileInto(fd, fd, 0),
    () => native.sendDescriptors(fd, Buffer.alloc(1), []),
    () => native.receiveDescriptors(fd, 1),
    () => native.peerCredentials(fd),
  ];
  for (const call of calls) expect(kindOf(call)).toBe("EBADF");
});

test("an argument that is out of range never reaches the addon", () => {
  const calls: (() => unknown)[] = [
    () => native.memfdCreate("", 1),
    () => native.memfdCreate("a\0b", 1),
    () => native.memfdCreate("x".repeat(250), 1),
    () => native.memfdCreate("ram", -1),
    () => native.memfdCreate("ram", 1.5),
    () => native.memfdCreate("ram", Number.NaN),
    () => native.memfdCreate("ram", 2 ** 50),
    () => native.addSeals(-1, 1),
    () => native.addSeals(3, 32),
    () => native.copyFileInto(3, 2 ** 31, 0),
    () => native.sendDescriptors(3, Buffer.alloc(0), []),
    () => native.sendDescriptors(3, Buffer.alloc(65_537), []),
    () => native.sendDescriptors(3, Buffer.alloc(1), Array(17).fill(3)),
    () => native.sendDescriptors(3, Buffer.alloc(1), [-1]),
    () => native.sendDescriptors(3, Buffer.alloc(1), [], 10_001),
    () => native.receiveDescriptors(3, 0),
    () => native.receiveDescriptors(3, 65_537),
    () => native.receiveDescriptors(3, 1, Number.POSITIVE_INFINITY),
    () => native.closeDescriptor(2),
    () => native.closeDescriptor(Number.NaN),
    () => native.setParentDeathSignal(65),
  ];
  for (const call of calls) expect(call).toThrow(Bug);
});

test("the parent-death signal can be set and taken back", () => {
  native.setParentDeathSignal(9);
  native.setParentDeathSignal(0);
});

test("an addon that is missing or of another machine says what to do", () => {
  const folder = mkdtempSync(join(tmpdir(), "native-"));
  const broken = join(folder, "native.node");
  expect(kindOf(() => loadNative(broken))).toBe("addon_missing");
  closeSync(openSync(broken, "w"));
  expect(kindOf(() => loadNative(broken))).toBe("addon_missing");
  expect(() => loadNative(broken)).toThrow(Failure);
  expect(() => loadNative(broken)).toThrow("npm run build");
  rmSync(folder, { recursive: true });
});
