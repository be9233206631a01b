import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { native } from "@capsem/native";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { addonPath, buildChild, type ChildOptions, runChild } from "./testing/child.ts";
import { FORBIDDEN_NAMES, WAY_OUT_NAMES } from "./testing/child-acts.ts";

vi.setConfig({ testTimeout: 60_000 });

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable)
  console.log("skipped: the seal of egress in real processes, because this kernel has no Landlock");
const sealed = test.skipIf(!usable);
const bundle = await buildChild("sealed-child");

const world = { folder: "", servers: [] as Server[], env: {} as Record<string, string>, dialled: 0 };
beforeAll(async () => {
  world.folder = mkdtempSync(join(tmpdir(), "jail-egress-"));
  copyFileSync(addonPath, join(world.folder, "other.node"));
  const unix = join(world.folder, "x.sock");
  const abstract = `capsem-jail-egress-${process.pid}`;
  const tcp = await listening({ host: "127.0.0.1", port: 0 });
  tcp.on("connection", () => {
    world.dialled += 1;
  });
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

const run = (options: Pick<ChildOptions, "when" | "acts">) =>
  runChild(bundle, { profile: "egress", env: world.env, ...options });

/** Node's own words where it does not pass on the filter's; a name is asked for in files and by datagrams. */
const REFUSALS: Readonly<Record<string, string>> = {
  dlopen: "ERR_DLOPEN_FAILED",
  "resolve a name": "EAI_AGAIN",
};
const ACTS = [...FORBIDDEN_NAMES.filter((name) => name !== "dial TCP"), ...WAY_OUT_NAMES];

sealed("each forbidden act is done by a free process", async () => {
  const { ends } = await run({ when: "free", acts: ACTS });
  for (const name of ACTS) {
    const done = name === "signal group" ? ["", "ESRCH"] : [""];
    expect([name, done.includes(ends[name] ?? "missing")], ends[name]).toEqual([name, true]);
  }
});

sealed("a sealed egress does none of them", async () => {
  const { code, ends } = await run({ when: "sealed", acts: ACTS });
  expect([code, ends.missing, ends.notes]).toEqual([0, "", ""]);
  for (const name of ACTS) expect([name, ends[name]]).toEqual([name, REFUSALS[name] ?? "EPERM"]);
});

sealed("a sealed egress dials by TCP, and Node has what it needs", async () => {
  const needed = ["timers", "pool threads", "compiled code", "collector", "WebAssembly", "worker"];
  const acts = ["dial TCP", ...needed, "signal itself"];
  const { code, errors, ends } = await run({ when: "sealed", acts });
  expect([code, errors, ends.missing]).toEqual([0, "", ""]);
  for (const name of acts) expect([name, ends[name]]).toEqual([name, ""]);
  expect(world.dialled).toBeGreaterThan(0);
});
