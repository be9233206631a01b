import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { createClient } from "./node.ts";
import { cellsOf, listenerIn, placesOf } from "./node-listeners.ts";
import { CheckedPort } from "./node-peer.ts";

const SELF = process.getuid?.() ?? 0;
const OTHER = 54_321;
const TOKEN = "S3cretTokenOfTheGateway";
const isLinux = process.platform === "linux";
/** Becoming another user needs root. */
const canBeOther = isLinux && SELF === 0;

const connectChecked = (host: string, port: number, uid: number) => new CheckedPort(host, port).connect(uid);

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** Takes connections as another user might, and says all that it is sent. */
const EAVESDROPPER = `
  const server = require("node:net").createServer((socket) => {
    socket.on("error", () => undefined);
    socket.on("data", (part) => {
      process.stdout.write(part);
      socket.end("HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\nconnection: close\\r\\n\\r\\n{}");
    });
  });
  server.listen(0, "127.0.0.1", () => console.log("port " + server.address().port));`;
/** Listens and never takes one: what comes waits in the kernel. */
const SLEEPER = EAVESDROPPER.replace(
  /console\.log\((.*)\)\);/,
  `{
    require("node:fs").writeSync(1, $1 + "\\n");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  });`,
);

async function listenAs(uid: number, program: string) {
  const options = uid === SELF ? {} : { uid, gid: uid };
  const child: ChildProcess = spawn(process.execPath, ["-e", program], {
    ...options,
    cwd: "/",
    stdio: ["ignore", "pipe", "inherit"],
  });
  closers.push(() => child.kill("SIGKILL"));
  const heard = { text: "" };
  child.stdout?.on("data", (part) => {
    heard.text += String(part);
  });
  await expect.poll(() => heard.text, { timeout: 10_000 }).toMatch(/^port \d+\n/);
  const port = Number(/\d+/.exec(heard.text)?.[0]);
  heard.text = "";
  return { port, heard };
}

function tokenFile(): string {
  const folder = mkdtempSync(join(tmpdir(), "sdk-peer-"));
  closers.push(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "token"), `${TOKEN}\n`, { mode: 0o600 });
  return join(folder, "token");
}

async function listen(host: string): Promise<number> {
  const server: Server = createServer((socket) => void closers.push(() => socket.destroy()));
  closers.push(() => server.close());
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(0, host, resolve);
  });
  return (server.address() as AddressInfo).port;
}

describe.runIf(canBeOther)("another user on the gateway's port", () => {
  test("gets the token where nobody looks who listens", async () => {
    const { port, heard } = await listenAs(OTHER, EAVESDROPPER);
    const client = createClient({ url: `http://127.0.0.1:${port}`, token: TOKEN });
    await client.vms.list().catch(() => undefined);
    await expect.poll(() => heard.text).toContain(TOKEN);
  });

  test.each(["127.0.0.1", "localhost"])(
    "gets not a byte from a client with the token's file, of %s",
    async (host) => {
      const { port, heard } = await listenAs(OTHER, EAVESDROPPER);
      const client = createClient({ url: `http://${host}:${port}`, tokenFile: tokenFile() });
      const vm = client.vm("vm_aaaaaaaaaaaaaaaa");
      for (const call of [() => client.vms.list(), () => client.vms.create(), () => vm.stream("true")]) {
        await expect(call()).rejects.toMatchObject({
          ...{ kind: "unauthorized", status: undefined, outcome: "none", retryable: false },
          message: expect.stringMatching(/another user listens there \(uid 54321.*nothing was sent/),
        });
      }
      // Its answer to what comes after them shows that it has heard all.
      const open = createClient({ url: `http://127.0.0.1:${port}`, token: "later" });
      await open.vms.list().catch(() => undefined);
      await expect.poll(() => heard.text).toMatch(/^GET \/vms\/list/);
      expect(heard.text).not.toContain(TOKEN);
    },
  );

  test("is found also while it takes no connection", async () => {
    const { port } = await listenAs(OTHER, SLEEPER);
    await expect(connectChecked("127.0.0.1", port, SELF)).rejects.toThrow(/another user listens there/);
  });
});

describe.runIf(isLinux)("the other end of a connection", () => {
  test("is ours on every address that a gateway may listen at", async () => {
    for (const [listening, dialled] of [
      ["127.0.0.1", "127.0.0.1"],
      ["0.0.0.0", "127.0.0.1"],
      ["::", "127.0.0.1"],
      ["::1", "::1"],
    ] as const) {
      const socket = await connectChecked(dialled, await listen(listening), SELF);
      closers.push(() => socket.destroy());
      await expect(connectChecked(dialled, await listen(listening), OTHER)).rejects.toThrow(/another user/);
    }
  });

  test("is ours while nobody has taken the connection", async () => {
    const { port } = await listenAs(SELF, SLEEPER);
    const socket = await connectChecked("127.0.0.1", port, SELF);
    closers.push(() => socket.destroy());
  });

  test("is looked at again with each connection: a port that changes hands is noticed", async () => {
    const first = createServer();
    await new Promise<void>((resolve) => first.listen(0, "127.0.0.1", resolve));
    const { port } = first.address() as AddressInfo;
    const checked = new CheckedPort("127.0.0.1", port);
    (await checked.connect(SELF)).destroy();
    await new Promise((resolve) => first.close(resolve));
    await expect(checked.connect(SELF)).rejects.toThrow(/ECONNREFUSED/);
    const second = createServer();
    closers.push(() => second.close());
    await new Promise<void>((resolve) => second.listen(port, "127.0.0.1", resolve));
    (await checked.connect(SELF)).destroy();
    await expect(checked.connect(OTHER)).rejects.toThrow(/another user/);
  });

  test("that does not exist is unavailable", async () => {
    const url = "http://127.0.0.1:1";
    await expect(createClient({ url, tokenFile: tokenFile() }).vms.create()).rejects.toMatchObject({
      ...{ kind: "unavailable", outcome: "none", message: `Cannot reach ${url}: ECONNREFUSED` },
    });
  });
});

/** Rows as a little-endian machine writes them. */
const row = (local: string, state: string, uid: number) =>
  `   7: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000 ${uid} 0 4711 1 0 20 0 0 10 -1`;
const V4 = "0100007F:4B16";
const MAPPED = "0000000000000000FFFF00000100007F:4B16";
const ALL = "00000000000000000000000000000000:4B16";
const V6 = "00000000000000000000000001000000:4B16";

test.each([
  ["127.0.0.1", V4, "0A", true],
  ["127.0.0.1", "00000000:4B16", "0A", true],
  ["127.0.0.1", MAPPED, "0A", true],
  ["127.0.0.1", ALL, "0A", true],
  ["127.0.0.1", V6, "0A", false],
  ["127.0.0.1", "0200007F:4B16", "0A", false],
  ["127.0.0.1", "0100007F:4B17", "0A", false],
  ["127.0.0.1", V4, "01", false],
  ["127.0.0.2", "0200007F:4B16", "0A", true],
  ["::1", V6, "0A", true],
  ["::1", ALL, "0A", true],
  ["::1", V4, "0A", false],
])("a connection to %s goes to a row of %s in state %s: %s", (address, local, state, goes) => {
  const found = listenerIn(cellsOf(row(local, state, 1000)), placesOf(address, 0x4b16));
  expect(found).toEqual(goes ? { uid: 1000, inode: "4711" } : null);
});
