import { copyFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { native } from "@capsem/native";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { addonPath, buildChild, type ChildOptions, runChild } from "./testing/child.ts";
import { FORBIDDEN_NAMES } from "./testing/child-acts.ts";

vi.setConfig({ testTimeout: 60_000 });

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable) console.log("skipped: the ledger's seal in real processes, because this kernel has no Landlock");
const sealed = test.skipIf(!usable);
const bundle = await buildChild("sealed-child");

const world = { folder: "", servers: [] as Server[], env: {} as Record<string, string> };
beforeAll(async () => {
  world.folder = mkdtempSync(join(tmpdir(), "jail-ledger-"));
  copyFileSync(addonPath, join(world.folder, "other.node"));
  const unix = join(world.folder, "x.sock");
  const abstract = `capsem-jail-ledger-${process.pid}`;
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

async function run(options: Pick<ChildOptions, "when" | "acts">) {
  const own = mkdtempSync(join(tmpdir(), "jail-tree-"));
  onTestFinished(() => rmSync(own, { recursive: true, force: true }));
  const env = { ...world.env, TREE_FOLDER: own };
  return runChild(bundle, { profile: "ledger", trees: [own], env, ...options });
}

/** Whose word forbids it: Landlock's is EACCES, the filter's EPERM. What a path is, may be asked. */
const REFUSALS: Readonly<Record<string, string>> = {
  readFileSync: "EACCES",
  "fs.promises": "EACCES",
  "write /tmp": "EACCES",
  "own memory": "EACCES",
  stat: "",
  dlopen: "ERR_DLOPEN_FAILED",
};
const ACTS = [...FORBIDDEN_NAMES, "tree elsewhere", "move out", "link in", "point out"];

sealed("each forbidden act is done by a free process", async () => {
  const { ends } = await run({ when: "free", acts: ACTS });
  for (const name of ACTS) {
    // Of its own group only: an answer proves that the kernel went to look. A link over a border fails, too.
    const done = ["signal group", "link in", "point out", "move out"].includes(name)
      ? ["", "ESRCH", "EXDEV", "EEXIST"]
      : [""];
    expect([name, done.includes(ends[name] ?? "missing")], ends[name]).toEqual([name, true]);
  }
  rmSync(join(world.folder, "vm"), { recursive: true, force: true });
  rmSync(join(world.folder, "kept"), { force: true });
  rmSync(join("/tmp", `capsem-jail-${process.pid}`), { force: true });
});

sealed("a sealed ledger does none of them", async () => {
  const { code, ends } = await run({ when: "sealed", acts: ACTS });
  expect([code, ends.missing]).toEqual([0, ""]);
  const own = { "tree elsewhere": "EACCES", "move out": "EACCES" };
  for (const name of ACTS) {
    expect([name, ends[name]]).toEqual([name, { ...REFUSALS, ...own }[name] ?? "EPERM"]);
  }
  expect(existsSync(join(world.folder, "vm"))).toBe(false);
  expect(existsSync(join(world.folder, "kept"))).toBe(false);
});

sealed("a sealed ledger makes, moves and removes below its folder, and Node has what it needs", async () => {
  const acts = ["tree", "timers", "pool threads", "compiled code", "collector", "worker", "signal itself"];
  const { code, errors, ends } = await run({ when: "sealed", acts });
  expect([code, errors]).toEqual([0, ""]);
  for (const name of acts) expect([name, ends[name]]).toEqual([name, ""]);
});
