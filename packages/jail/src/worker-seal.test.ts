import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { native } from "@capsem/native";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { addonPath, buildChild, type ChildOptions, runChild } from "./testing/child.ts";
import { FORBIDDEN_NAMES } from "./testing/child-acts.ts";

vi.setConfig({ testTimeout: 60_000 });

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable) console.log("skipped: the workers' seal in real processes, because this kernel has no Landlock");
const sealed = test.skipIf(!usable);
const bundle = await buildChild("sealed-child");

/** Their profiles differ by the name alone, which a test of the compiler proves: one is tried in real processes. */
const profile = "builtin";
const world = { folder: "", servers: [] as Server[], env: {} as Record<string, string> };
beforeAll(async () => {
  world.folder = mkdtempSync(join(tmpdir(), "jail-worker-"));
  copyFileSync(addonPath, join(world.folder, "other.node"));
  const unix = join(world.folder, "x.sock");
  const abstract = `capsem-jail-worker-${process.pid}`;
  const tcp = await listening({ host: "127.0.0.1", port: 0 });
  await listening({ path: unix });
  await listening({ path: `\0${abstract}` });
  const address = tcp.address();
  world.env = {
    TCP_PORT: String(typeof address === "object" ? address?.port : ""),
    UNIX_SOCKET: unix,
    ABSTRACT_SOCKET: abstract,
    OTHER_ADDON: join(world.folder, "other.node"),
    OTHER_FOLDER: world.folder,
    SPOOL_FOLDER: world.folder,
  };
});
afterAll(() => {
  for (const server of world.servers) server.close();
  rmSync(world.folder, { recursive: true, force: true });
  rmSync(join("/tmp", `capsem-jail-${process.pid}`), { force: true });
});

async function listening(where: { path: string } | { host: string; port: number }): Promise<Server> {
  const server = createServer((socket) => socket.end());
  await new Promise<void>((done) => server.listen(where, () => done()));
  world.servers.push(server);
  return server;
}

const run = (options: Pick<ChildOptions, "when" | "acts" | "write" | "descriptors" | "env">) =>
  runChild(bundle, { profile, ...options, env: { ...world.env, ...options.env } });

/** Two sockets on each of which a channel waits; the first is the one for grants. */
function grants() {
  const pairs = [native().socketPair("seqpacket"), native().socketPair("seqpacket")] as const;
  const fars = pairs.map(([ours]) => {
    const [near, far] = native().socketPair("stream");
    const service = new Socket({ fd: near, readable: true, writable: true });
    service.on("data", () => service.end("answer"));
    service.on("error", () => service.destroy());
    onTestFinished(() => void service.destroy());
    native().sendDescriptors(ours, Buffer.from("x"), [far]);
    return far;
  });
  onTestFinished(() => {
    for (const fd of [...pairs.flat(), ...fars]) native().closeDescriptor(fd);
  });
  return {
    descriptors: pairs.map(([, theirs]) => theirs),
    env: { GRANTS_FD: "3", OTHER_GRANTS_FD: "4" },
  };
}

/** The filter's word for all, which is asked before Landlock; Node has one of its own for a library. */
const REFUSALS: Readonly<Record<string, string>> = { dlopen: "ERR_DLOPEN_FAILED" };
/** The folder of a spool is granted here, so that nothing but the filter keeps it from the file. */
const ACTS = [...FORBIDDEN_NAMES, "spool", "granted elsewhere"];

sealed("each forbidden act is done by a free process", async () => {
  const { ends } = await run({ when: "free", acts: ACTS, ...grants() });
  for (const name of ACTS) {
    // Of its own group only: an answer proves that the kernel went to look.
    const done = name === "signal group" ? ["", "ESRCH"] : [""];
    expect([name, done.includes(ends[name] ?? "missing")], ends[name]).toEqual([name, true]);
  }
  rmSync(join("/tmp", `capsem-jail-${process.pid}`), { force: true });
});

sealed("a sealed worker does none of them, and takes a descriptor from no other socket", async () => {
  const { code, ends } = await run({ when: "sealed", acts: ACTS, write: [world.folder], ...grants() });
  expect([code, ends.missing]).toEqual([0, ""]);
  for (const name of ACTS) expect([name, ends[name]]).toEqual([name, REFUSALS[name] ?? "EPERM"]);
});

sealed("a sealed worker takes the channel that it is granted, and Node has what it needs", async () => {
  const needed = ["timers", "pool threads", "compiled code", "collector", "WebAssembly", "worker"];
  const acts = ["granted socket", ...needed, "signal itself"];
  const { code, errors, ends } = await run({ when: "sealed", acts, ...grants() });
  expect([code, errors, ends.missing]).toEqual([0, "", ""]);
  for (const name of acts) expect([name, ends[name]]).toEqual([name, ""]);
});
