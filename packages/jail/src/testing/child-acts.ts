// What the sealed child can be told to do: what must fail there, and what Node must still be able to do.
import { execFileSync, spawn } from "node:child_process";
import { randomBytes, scrypt } from "node:crypto";
import { createSocket } from "node:dgram";
import { lookup } from "node:dns/promises";
import {
  closeSync,
  fsyncSync,
  ftruncateSync,
  linkSync,
  mkdirSync,
  openSync,
  promises,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { connect, createServer, Socket } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";
import { deflate } from "node:zlib";
import { ACTS as NATIVE_ACTS, native } from "@capsem/native";

/** What a sealed child may write into one file. */
export const CHILD_FILE_BYTES_MAX = 64 * 1024;

/** Ends by returning (done), by an error's code, or by the text that it returns. */
type ChildAct = () => unknown | Promise<string | undefined>;

const errored = (emitter: NodeJS.EventEmitter, done: string): Promise<string> =>
  new Promise((resolve) => {
    emitter.once("error", (error) => resolve(String((error as NodeJS.ErrnoException).code)));
    emitter.once(done, () => resolve(""));
  });

const FORBIDDEN: Readonly<Record<string, ChildAct>> = {
  readFileSync: () => void readFileSync("/etc/passwd"),
  "fs.promises": async () => void (await promises.readFile("/etc/passwd")),
  stat: () => void statSync("/etc/passwd"),
  "write /tmp": () => closeSync(openSync(join("/tmp", `capsem-jail-${process.pid}`), "a")),
  "own memory": () => closeSync(openSync("/proc/self/mem", "r+")),
  "dial TCP": () => errored(connect(Number(process.env.TCP_PORT), "127.0.0.1"), "connect"),
  "dial Unix": () => errored(connect(process.env.UNIX_SOCKET ?? ""), "connect"),
  "dial abstract": () => errored(connect(`\0${process.env.ABSTRACT_SOCKET}`), "connect"),
  listen: () => errored(createServer().listen(0, "127.0.0.1").unref(), "listening"),
  spawn: () => errored(spawn("/bin/true"), "exit"),
  exec: () => void execFileSync("/bin/true"),
  signal: () => void process.kill(process.ppid, 0),
  "signal group": () => void process.kill(-process.ppid, 0),
  dlopen: () => process.dlopen({ exports: {} } as NodeJS.Module, process.env.OTHER_ADDON ?? ""),
  memfd: () => native().closeDescriptor(native().memfdCreate("x", 1)),
};

/** Ways out for a process that may dial. */
const WAYS_OUT: Readonly<Record<string, ChildAct>> = {
  "send a datagram": () =>
    new Promise<string>((resolve) => {
      const socket = createSocket("udp4");
      const end = (error: NodeJS.ErrnoException | null) => {
        socket.close();
        resolve(error?.code ?? "");
      };
      socket.once("error", end);
      socket.send("x", Number(process.env.TCP_PORT), "127.0.0.1", end);
    }),
  "resolve a name": async () => void (await lookup("localhost")),
};
export const WAY_OUT_NAMES = Object.keys(WAYS_OUT);

/** Node's own abilities. Each throws when it cannot, and returns nothing when it can. */
const NEEDED: Readonly<Record<string, ChildAct>> = {
  timers: () => new Promise((done) => setTimeout(done, 2)),
  "pool threads": async () => {
    await promisify(scrypt)("a", "b", 16);
    await promisify(deflate)(randomBytes(100_000));
    await Promise.all([1, 2, 3, 4, 5, 6].map(() => promisify(randomBytes)(8)));
  },
  "compiled code": () => {
    // Hot enough for every tier of the compiler.
    const work = new Function("n", "let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s;");
    for (let i = 0; i < 30; i++) work(1_000_000);
  },
  collector: () => {
    let kept: Uint8Array[] = [];
    for (let i = 0; i < 200; i++) {
      kept.push(new Uint8Array(1_000_000).fill(i));
      if (kept.length > 20) kept = [];
    }
  },
  WebAssembly: async () => {
    // Compiled from text: the types of a browser's globals are not ours.
    await new Function("bytes", "return WebAssembly.instantiate(bytes)")(
      Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0),
    );
  },
  worker: () =>
    new Promise<string | undefined>((resolve) => {
      const worker = new Worker("require('node:worker_threads').parentPort.postMessage(1)", { eval: true });
      worker.once("error", (error) => resolve(String(error)));
      worker.once("message", () => resolve(undefined));
    }),
  "inherited socket": () =>
    new Promise<string | undefined>((resolve) => {
      const socket = new Socket({ fd: Number(process.env.ECHO_FD), readable: true, writable: true });
      socket.once("error", (error) => resolve(String(error)));
      socket.once("data", (data) => {
        socket.destroy();
        resolve(data.toString() === "echo" ? undefined : data.toString());
      });
      socket.write("echo");
    }),
  "granted elsewhere": async () => {
    const { fds } = await native().receiveDescriptorsLater(Number(process.env.OTHER_GRANTS_FD), 1);
    for (const fd of fds) native().closeDescriptor(fd);
    return fds.length === 1 ? undefined : "no descriptor came";
  },
  "granted socket": async () => {
    const { fds } = await native().receiveDescriptorsLater(Number(process.env.GRANTS_FD), 1);
    const [fd] = fds;
    if (fd === undefined) return "no descriptor came";
    const socket = new Socket({ fd, readable: true, writable: true });
    const text = new Promise<string>((resolve) => socket.once("data", (data) => resolve(data.toString())));
    socket.write("ask");
    const answer = await text;
    socket.destroy();
    return answer === "answer" ? undefined : answer;
  },
  spool: () => {
    const path = join(process.env.SPOOL_FOLDER ?? "", "job.ring");
    const fd = openSync(path, "w+", 0o600);
    writeSync(fd, Buffer.from("kept"), 0, 4, 8);
    const back = Buffer.alloc(4);
    readSync(fd, back, 0, 4, 8);
    closeSync(fd);
    unlinkSync(path);
    return back.toString() === "kept" ? undefined : back.toString();
  },
  "grow a file": () => {
    const path = join(process.env.SPOOL_FOLDER ?? "", "large.ring");
    const fd = openSync(path, "w+", 0o600);
    try {
      writeSync(fd, "x", CHILD_FILE_BYTES_MAX - 1);
      // One byte, a terabyte on: a file that is nearly all hole.
      writeSync(fd, "x", 1024 ** 4);
    } finally {
      closeSync(fd);
    }
  },
  "spool elsewhere": () => closeSync(openSync(join(process.env.OTHER_FOLDER ?? "", "job.ring"), "w+", 0o600)),
  tree: () => tend(process.env.TREE_FOLDER ?? ""),
  "tree elsewhere": () => mkdirSync(join(process.env.OTHER_FOLDER ?? "", "vm")),
  "move out": () => {
    const path = join(process.env.TREE_FOLDER ?? "", "kept");
    writeFileSync(path, "kept");
    renameSync(path, join(process.env.OTHER_FOLDER ?? "", "kept"));
  },
  "link in": () => linkSync("/etc/passwd", join(process.env.TREE_FOLDER ?? "", "passwd")),
  "point out": () => symlinkSync("/etc/passwd", join(process.env.TREE_FOLDER ?? "", "passwd")),
  "hand over": () => native().sendDescriptors(Number(process.env.HANDED_FD), Buffer.from("x"), [0]),
  "read a spool": () => closeSync(openSync(join(process.env.SPOOL_FOLDER ?? "", "job.ring"), "r")),
  "signal hypervisor": () => void process.kill(Number(process.env.HYPERVISOR_PID), 0),
  "signal itself": () => void process.kill(process.pid, 0),
  abort: () => process.abort(),
};

/** All that a ledger does below its folder. */
function tend(folder: string): string | undefined {
  const [vm, archive] = [join(folder, "vm"), join(folder, "vm", "archive")];
  mkdirSync(archive, { recursive: true });
  const fd = openSync(join(vm, "db"), "w+", 0o600);
  writeSync(fd, "page", 4096);
  fsyncSync(fd);
  ftruncateSync(fd, 4096);
  closeSync(fd);
  renameSync(join(vm, "db"), join(archive, "db"));
  const found = readdirSync(archive).join();
  rmSync(vm, { recursive: true });
  return found === "db" && readdirSync(folder).length === 0 ? undefined : found;
}

export const ACTS: Readonly<Record<string, ChildAct>> = {
  ...FORBIDDEN,
  ...WAYS_OUT,
  ...NEEDED,
  ...Object.fromEntries(NATIVE_ACTS.map((act) => [`native ${act}`, () => native().attempt(act)])),
};
export const FORBIDDEN_NAMES = Object.keys(FORBIDDEN);
export const NATIVE_NAMES = NATIVE_ACTS.map((act) => `native ${act}`);
