import { spawn } from "node:child_process";
import { once } from "node:events";
import { fstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { launchWords, native } from "@capsem/native";
import { expect, onTestFinished, test } from "vitest";
import { openGatekeeper } from "./gatekeeper.ts";
import { NODE_ENVIRONMENT, nodeReadPaths } from "./launch-plans.ts";
import { addonPath, buildChild } from "./testing/child.ts";

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable)
  console.log("skipped: a sealed gateway under its gatekeeper, because this kernel has no Landlock");
const sealed = test.skipIf(!usable);
const bundle = await buildChild("granted-gateway");

sealed("a sealed gateway lives on what its gatekeeper grants", async () => {
  const folder = mkdtempSync(join(tmpdir(), "jail-keeper-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const runFolder = join(folder, "r".repeat(120));
  mkdirSync(runFolder);
  const tokenPath = join(runFolder, "gateway.token");
  writeFileSync(tokenPath, "secret", { mode: 0o600 });
  const log = join(folder, "gateway.log");
  const launch = launchWords({
    parentPid: 1,
    command: process.execPath,
    args: [bundle],
    grants: nodeReadPaths(process.execPath, [bundle, addonPath]),
    env: { ...NODE_ENVIRONMENT, TOKEN_PATH: tokenPath },
    netNamespace: "off",
    ...(process.getuid?.() === 0 ? { asRoot: true } : {}),
  });
  const keeper = spawn(
    join(dirname(launch.file), "capsem-gatekeeper"),
    [
      ...["--listen", "127.0.0.1:0", "--run-dir", runFolder, "--log", log, "--launcher", launch.file],
      // Its parent is the gatekeeper, which says so itself.
      ...launch.args.slice(2),
    ],
    { stdio: ["ignore", "pipe", "inherit"], env: {} },
  );
  onTestFinished(() => void keeper.kill("SIGKILL"));
  let said = "";
  keeper.stdout.on("data", (data) => {
    said += data;
  });
  await once(keeper.stdout, "end");
  const port = Number(/^ready (\d+)\n$/.exec(said)?.[1]);
  expect([said, readFileSync(log, "utf8")]).toEqual([`ready ${port}\n`, ""]);
  const ask = async (word: string): Promise<unknown> => {
    const socket = connect(port, "127.0.0.1", () => socket.write(word));
    let text = "";
    for await (const data of socket) text += data;
    return JSON.parse(text);
  };
  expect(await ask("token by path")).toEqual({ failed: "EPERM" });
  expect(await ask("token")).toBe("secret");
  expect(await ask("log")).toBe("written");
  expect(readFileSync(log, "utf8")).toBe("from the gateway\n");
  expect(await ask("service")).toEqual({ failed: "Cannot reach the service: it is not there (ENOENT)" });
  const cwd = process.cwd();
  process.chdir(runFolder);
  const service = createServer((socket) => socket.on("data", (data) => socket.end(`${data}, gateway`)));
  await new Promise<void>((done) => service.listen("service.sock", () => done()));
  process.chdir(cwd);
  onTestFinished(() => void service.close());
  expect(await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(() => ask("service")))).toEqual(
    Array(8).fill("hello, gateway"),
  );
  keeper.kill("SIGTERM");
  await once(keeper, "exit");
  expect(readdirSync(runFolder).sort()).toEqual(["gateway.lock", "gateway.token", "service.sock"]);
});

/** The other end, in this process: it answers when and what the test says. */
function openPair() {
  const [ours, theirs] = native().socketPair("seqpacket");
  const closed = new Set<number>();
  const close = (fd: number) => {
    if (!closed.has(fd)) native().closeDescriptor(fd);
    closed.add(fd);
  };
  onTestFinished(() => {
    close(ours);
    close(theirs);
  });
  return {
    gatekeeper: openGatekeeper(ours, native()),
    request: async () => {
      const { payload } = await native().receiveDescriptorsLater(theirs, 16, { timeoutMs: 5_000 });
      return [...payload];
    },
    answer: (bytes: readonly number[], fds: readonly number[] = []) =>
      native().sendDescriptors(theirs, Uint8Array.from(bytes), fds),
    hangUp: () => close(theirs),
  };
}

const kindOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "granted",
    (thrown: { kind?: string }) => String(thrown.kind),
  );
const descriptorCount = () => readdirSync("/proc/self/fd").length;

function memory(sizeBytes: number): number {
  const fd = native().memfdCreate("granted", sizeBytes);
  onTestFinished(() => native().closeDescriptor(fd));
  return fd;
}

test("an answer that comes after its asker gave up is closed, and the next one gets its own", async () => {
  const { gatekeeper, request, answer } = openPair();
  const [late, right] = [memory(1), memory(2)];
  const before = descriptorCount();
  const first = gatekeeper.connectService({ timeoutMs: 5 });
  const [, firstNumber = 0] = await request();
  expect(await kindOf(first)).toBe("gatekeeper_refused");
  const second = gatekeeper.connectService();
  const [, secondNumber = 0] = await request();
  answer([firstNumber, 0, 0], [late]);
  answer([secondNumber, 0, 0], [right]);
  const fd = await second;
  expect(fstatSync(fd).size).toBe(2);
  native().closeDescriptor(fd);
  expect(descriptorCount()).toBe(before);
});

test("requests take turns: the second is sent when the first is answered", async () => {
  const { gatekeeper, request, answer } = openPair();
  const fd = memory(1);
  const asked = [gatekeeper.openToken(), gatekeeper.openLog()];
  const [verb, number = 0] = await request();
  expect(String.fromCharCode(verb ?? 0)).toBe("T");
  const next = request();
  answer([number, 0, 0], [fd]);
  const [nextVerb, nextNumber = 0] = await next;
  expect(String.fromCharCode(nextVerb ?? 0)).toBe("L");
  answer([nextNumber, 1, 28]);
  const [token, log] = await Promise.allSettled(asked);
  if (token?.status === "fulfilled") native().closeDescriptor(token.value);
  expect([token?.status, log?.status]).toEqual(["fulfilled", "rejected"]);
  await expect(asked[1]).rejects.toThrow("Cannot open the log: the disk is full (ENOSPC)");
});

test("an abort ends the wait, and a gatekeeper that is gone is lost", async () => {
  const { gatekeeper, request, hangUp } = openPair();
  const abort = new AbortController();
  const waiting = kindOf(gatekeeper.connectService({ signal: abort.signal }));
  await request();
  abort.abort();
  expect(await waiting).toBe("gatekeeper_refused");
  hangUp();
  expect(await kindOf(gatekeeper.openToken())).toBe("gatekeeper_lost");
  expect(await kindOf(gatekeeper.ready())).toBe("gatekeeper_lost");
});

test("who gives up before its turn is told so at once, and nothing is asked for it", async () => {
  const { gatekeeper, request, answer } = openPair();
  const abort = new AbortController();
  const ends: string[] = [];
  const first = kindOf(gatekeeper.ready()).finally(() => ends.push("first"));
  const second = kindOf(gatekeeper.connectService({ signal: abort.signal })).finally(() =>
    ends.push("second"),
  );
  const third = kindOf(gatekeeper.ready());
  const [, number = 0] = await request();
  abort.abort();
  expect(await second).toBe("gatekeeper_refused");
  expect(ends).toEqual(["second"]);
  answer([number, 0, 0]);
  expect(await first).toBe("granted");
  const [verb, next = 0] = await request();
  expect(String.fromCharCode(verb ?? 0)).toBe("R");
  answer([next, 0, 0]);
  expect(await third).toBe("granted");
});

test("an answer with more or fewer descriptors than was asked for is refused whole", async () => {
  const { gatekeeper, request, answer } = openPair();
  const fd = memory(1);
  const before = descriptorCount();
  for (const fds of [[], [fd, fd]]) {
    const asked = kindOf(gatekeeper.openToken());
    const [, number = 0] = await request();
    answer([number, 0, 0], fds);
    expect(await asked).toBe("gatekeeper_lost");
  }
  const asked = kindOf(gatekeeper.ready());
  const [, number = 0] = await request();
  answer([number, 0, 0], [fd]);
  expect(await asked).toBe("gatekeeper_lost");
  expect(descriptorCount()).toBe(before);
});
