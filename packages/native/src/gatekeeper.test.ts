import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { buildFixture, distDir } from "./native-fixture.ts";

await buildFixture();

/**
 * A gateway that does what its clients say: each connection on descriptor 3 sends one word, and gets back what the
 * gatekeeper answered on 4, as JSON. Everything is done by the addon alone.
 */
const GATEWAY = `
  const [addonPath, ...words] = process.argv.slice(1);
  const addon = require(addonPath), fs = require("node:fs"), net = require("node:net");
  let number = 0;
  const ask = (verb) => {
    number = (number + 1) % 256;
    addon.sendDescriptors(4, Buffer.from([verb.charCodeAt(0), number]), [], 2000);
    const { payload, fds } = addon.receiveDescriptors(4, 3, 2000);
    return { number: payload[0] === number, status: payload[1], errno: payload[2], fds };
  };
  const talk = (fd, text) => new Promise((done) => {
    const socket = new net.Socket({ fd, readable: true, writable: true });
    socket.on("data", (data) => { socket.destroy(); done(data.toString()); }).write(text);
  });
  const acts = {
    async C() { const a = ask("C"); return { ...a, said: a.fds[0] === undefined ? null : await talk(a.fds[0], "hello") }; },
    T() { const a = ask("T"); return { ...a, said: a.fds[0] === undefined ? null : fs.readFileSync(a.fds[0], "utf8") }; },
    L() { const a = ask("L"); if (a.fds[0] !== undefined) fs.writeSync(a.fds[0], "line\\n"); return a; },
    R: () => ask("R"),
    X: () => ask("X"),
    many() { addon.sendDescriptors(4, Buffer.from("CCC"), [], 2000); const { payload } = addon.receiveDescriptors(4, 3, 2000); return { bytes: payload.length }; },
    flood() {
      for (let i = 0; i < 2000; i++) addon.sendDescriptors(4, Buffer.from([[67, 84, 76, 88, 0, 255][i % 6], i % 256]), [], 2000);
      let answers = 0;
      try { for (;; answers++) for (const fd of addon.receiveDescriptors(4, 3, 200).fds) addon.closeDescriptor(fd); } catch { return { answers }; }
    },
    gift() {
      const fd = fs.openSync("/dev/null");
      addon.sendDescriptors(4, Buffer.from([88, ++number % 256]), [fd, fd, fd], 2000);
      return addon.receiveDescriptors(4, 3, 2000).payload[1];
    },
    pid: () => process.pid,
    fds: () => [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13].filter((fd) => { try { return fs.fstatSync(fd); } catch { return false; } }),
    exit5: () => process.exit(5),
  };
  process.on("SIGHUP", () => fs.writeSync(1, "hup\\n"));
  if (words.includes("stubborn")) process.on("SIGTERM", () => fs.writeSync(1, "no\\n"));
  net.createServer((socket) => socket.on("data", async (word) => {
    socket.end(JSON.stringify(await acts[word.toString()]()));
  })).listen({ fd: 3 }, () => { if (!words.includes("silent")) ask("R"); });
`;

interface Keeper {
  readonly folder: string;
  readonly child: ChildProcess;
  readonly port: number;
  /** Its exit code, or the signal. */
  readonly ended: Promise<number | string | null>;
  readonly log: () => string;
  readonly said: () => { out: string; errors: string };
  ask(word: string): Promise<Record<string, unknown>>;
}

const cleanUps: (() => void | Promise<void>)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

function newFolder(name = "run"): string {
  const root = mkdtempSync(join(tmpdir(), "gatekeeper-"));
  cleanUps.push(() => rmSync(root, { recursive: true, force: true }));
  const folder = join(root, name);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  return folder;
}

function launch(folder: string, words: readonly string[] = [], listen = "127.0.0.1:0") {
  const child = spawn(
    join(distDir, "capsem-gatekeeper"),
    [
      ...["--listen", listen, "--run-dir", folder, "--log", join(folder, "gateway.log")],
      ...["--launcher", join(distDir, "capsem-launch")],
      ...["--as-root-ok", "--landlock", "off", "--net-namespace", "off", "--"],
      ...[process.execPath, "-e", GATEWAY, join(distDir, "native.node"), ...words],
    ],
    { stdio: ["ignore", "pipe", "pipe"], env: { PATH: process.env.PATH ?? "" } },
  );
  let out = "";
  let errors = "";
  child.stdout.on("data", (data) => {
    out += data;
  });
  child.stderr.on("data", (data) => {
    errors += data;
  });
  const ended = new Promise<number | string | null>((done) =>
    child.once("close", (code, signal) => done(code ?? signal)),
  );
  cleanUps.push(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  return { child, ended, said: () => ({ out, errors }) };
}

/** Started, and ready: its standard output has ended. */
async function start(folder = newFolder(), words: readonly string[] = []): Promise<Keeper> {
  const { child, ended, said } = launch(folder, words);
  await Promise.race([once(child.stdout ?? child, "end"), ended]);
  const port = Number(/^ready (\d+)\n$/.exec(said().out)?.[1]);
  return {
    folder,
    child,
    port,
    ended,
    said,
    log: () => readFileSync(join(folder, "gateway.log"), "utf8"),
    ask: (word) =>
      new Promise((resolve, reject) => {
        let text = "";
        const socket = connect(port, "127.0.0.1", () => socket.write(word));
        socket.on("data", (data) => {
          text += data;
        });
        socket.once("error", reject);
        socket.once("close", () => resolve(text === "" ? {} : JSON.parse(text)));
      }),
  };
}

/** A service that answers every connection in capitals. */
async function startService(folder: string): Promise<Server> {
  const server = createServer((socket) =>
    socket.on("data", (data) => socket.end(data.toString().toUpperCase())),
  );
  // As the product does it: the folder's path may be longer than a socket's may be.
  const cwd = process.cwd();
  process.chdir(folder);
  await new Promise<void>((done) => server.listen("service.sock", () => done()));
  process.chdir(cwd);
  cleanUps.push(() => void server.close());
  return server;
}

const run = test.skipIf(process.platform !== "linux");

run(
  "it says the port once the gateway is ready, and leaves pid and port behind for others to find",
  async () => {
    const { folder, child, port, said } = await start();
    expect(said()).toEqual({ out: `ready ${port}\n`, errors: "" });
    expect(readFileSync(join(folder, "gateway.pid"), "utf8")).toBe(`${child.pid}\n`);
    expect(readFileSync(join(folder, "gateway.port"), "utf8")).toBe(`${port}\n`);
    expect(statSync(join(folder, "gateway.pid")).mode & 0o777).toBe(0o600);
    expect(statSync(join(folder, "gateway.port")).mode & 0o777).toBe(0o600);
  },
);

run("a gateway that is not ready keeps the starter waiting", async () => {
  const folder = newFolder();
  const { said } = launch(folder, ["silent"]);
  await expect.poll(() => existsSync(join(folder, "gateway.port")), { timeout: 10_000 }).toBe(true);
  const port = Number(readFileSync(join(folder, "gateway.port"), "utf8"));
  // An answer proves that it lives and has had the chance to say it.
  const pid = await new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("pid"));
    socket.once("data", (data) => resolve(data.toString()));
  });
  expect(pid).toMatch(/^\d+$/);
  expect(said().out).toBe("");
});

run("a connection to the service is granted, in a folder whose path no socket could have", async () => {
  const keeper = await start(newFolder("x".repeat(120)));
  expect(await keeper.ask("C")).toMatchObject({ number: true, status: 1, errno: 2, said: null });
  await startService(keeper.folder);
  expect(await keeper.ask("C")).toMatchObject({ number: true, status: 0, errno: 0, said: "HELLO" });
});

run("the token is granted for reading, and only when it is a file and no link", async () => {
  const keeper = await start();
  const path = join(keeper.folder, "gateway.token");
  expect(await keeper.ask("T")).toMatchObject({ status: 1, errno: 2 });
  writeFileSync(path, "secret", { mode: 0o600 });
  expect(await keeper.ask("T")).toMatchObject({ status: 0, said: "secret" });
  rmSync(path);
  symlinkSync("/etc/passwd", path);
  expect(await keeper.ask("T")).toMatchObject({ status: 1, errno: 40, said: null });
  rmSync(path);
  mkdirSync(path);
  expect(await keeper.ask("T")).toMatchObject({ status: 1, errno: 22, said: null });
});

run("the log is granted for appending, and moved aside when it is full, three times over", async () => {
  const keeper = await start();
  const path = join(keeper.folder, "gateway.log");
  expect(await keeper.ask("L")).toMatchObject({ status: 0 });
  expect(readFileSync(path, "utf8")).toBe("line\n");
  for (const mark of ["a", "b", "c", "d"]) {
    writeFileSync(path, mark.repeat(10 * 1024 * 1024 + 1));
    await keeper.ask("L");
    expect(readFileSync(path, "utf8")).toBe("line\n");
  }
  const marks = [1, 2, 3, 4].map((n) =>
    existsSync(`${path}.${n}`) ? readFileSync(`${path}.${n}`, "utf8")[0] : "none",
  );
  expect(marks).toEqual(["d", "c", "b", "none"]);
});

run("an unknown verb is refused, and a request of another shape ends all grants", async () => {
  const keeper = await start();
  expect(await keeper.ask("X")).toMatchObject({ number: true, status: 1, errno: 22, fds: [] });
  expect(await keeper.ask("many")).toEqual({ bytes: 0 });
});

run(
  "a gateway that asks without reading loses answers; its gatekeeper keeps nothing open and goes on",
  async () => {
    const keeper = await start();
    writeFileSync(join(keeper.folder, "gateway.token"), "secret");
    const held = () => readdirSync(`/proc/${keeper.child.pid}/fd`).length;
    // It has closed what was its gateway's once it answers.
    await keeper.ask("T");
    const before = held();
    const { answers } = await keeper.ask("flood");
    expect(answers).toBeGreaterThan(0);
    expect(await keeper.ask("T")).toMatchObject({ number: true, status: 0, said: "secret" });
    // Descriptors that nobody asked for are dropped with their message.
    expect(await keeper.ask("gift")).toBe(1);
    expect(held()).toBe(before);
  },
);

run("the gateway gets the listener, its end of the pair and its standard streams, nothing else", async () => {
  const keeper = await start();
  const fds = (await keeper.ask("fds")) as unknown as number[];
  expect(fds.filter((fd) => fd < 5)).toEqual([0, 1, 2, 3, 4]);
  const target = (fd: number) => statSync(`/proc/${keeper.child.pid}/fd/${fd}`);
  expect(target(1).isCharacterDevice()).toBe(true);
});

run("a termination ends the gateway in order, and its files go", async () => {
  const keeper = await start();
  keeper.child.kill("SIGTERM");
  expect(await keeper.ended).toBe(128 + 15);
  expect(existsSync(join(keeper.folder, "gateway.pid"))).toBe(false);
  expect(existsSync(join(keeper.folder, "gateway.port"))).toBe(false);
});

run(
  "a gateway that does not end is killed after five seconds",
  async () => {
    const keeper = await start(newFolder(), ["stubborn"]);
    keeper.child.kill("SIGTERM");
    expect(await keeper.ended).toBe(128 + 9);
    expect(keeper.log()).toContain("no\n");
  },
  20_000,
);

run("the gateway's own end is its code, and files that another one wrote stay", async () => {
  const keeper = await start();
  writeFileSync(join(keeper.folder, "gateway.pid"), "1\n");
  await keeper.ask("exit5");
  expect(await keeper.ended).toBe(5);
  expect(readFileSync(join(keeper.folder, "gateway.pid"), "utf8")).toBe("1\n");
});

run("a hang-up is passed on", async () => {
  const keeper = await start();
  keeper.child.kill("SIGHUP");
  await expect.poll(() => keeper.log(), { timeout: 10_000 }).toContain("hup\n");
});

run("the gateway dies with its gatekeeper, and the next one finds the way free", async () => {
  const keeper = await start();
  const pid = (await keeper.ask("pid")) as unknown as number;
  keeper.child.kill("SIGKILL");
  await keeper.ended;
  const isAlive = () =>
    existsSync(`/proc/${pid}`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  await expect.poll(isAlive, { timeout: 10_000 }).toBe(false);
  expect(existsSync(join(keeper.folder, "gateway.pid"))).toBe(true);
  const next = await start(keeper.folder);
  expect(readFileSync(join(keeper.folder, "gateway.pid"), "utf8")).toBe(`${next.child.pid}\n`);
});

run("a second gateway of a folder is refused, and touches nothing of the first", async () => {
  const keeper = await start();
  const second = launch(keeper.folder);
  expect(await second.ended).toBe(82);
  expect(second.said().errors).toMatch(/^capsem-gatekeeper: .*another gateway of this folder runs\n$/);
  expect(readFileSync(join(keeper.folder, "gateway.pid"), "utf8")).toBe(`${keeper.child.pid}\n`);
  expect(await keeper.ask("pid")).toBeGreaterThan(0);
});

run("a port that is taken has a code and a line of its own", async () => {
  const keeper = await start();
  const other = launch(newFolder(), [], `127.0.0.1:${keeper.port}`);
  expect(await other.ended).toBe(83);
  expect(other.said().errors).toBe("capsem-gatekeeper: port: already in use by another program\n");
});

run("only loopback is listened on", async () => {
  for (const listen of [
    "0.0.0.0:0",
    "10.0.0.1:80",
    "[::]:0",
    "localhost:0",
    "127.0.0.1",
    "127.0.0.1:65536",
    "::1:0",
  ]) {
    const { ended, said } = launch(newFolder(), [], listen);
    expect([listen, await ended]).toEqual([listen, 80]);
    expect(said().errors).toMatch(/^capsem-gatekeeper: --listen: [^\n]+\n$/);
  }
});

run("a launcher that cannot run leaves no files, and a folder that is none is named", async () => {
  const folder = newFolder();
  const words = (launcher: string, runDir: string) => [
    ...["--listen", "127.0.0.1:0", "--run-dir", runDir, "--log", join(folder, "log"), "--launcher", launcher],
    ...["--", "/bin/true"],
  ];
  const end = async (args: string[]) => {
    const child = spawn(join(distDir, "capsem-gatekeeper"), args, { stdio: "ignore" });
    const [code] = await once(child, "close");
    return code;
  };
  const plain = join(folder, "plain");
  writeFileSync(plain, "");
  chmodSync(plain, 0o600);
  expect(await end(words(plain, folder))).toBe(87);
  expect(existsSync(join(folder, "gateway.pid"))).toBe(false);
  expect(await end(words("/bin/true", join(folder, "nowhere")))).toBe(81);
  expect(await end(words("relative", folder))).toBe(80);
});
