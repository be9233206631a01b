import { createSocket } from "node:dgram";
import { once } from "node:events";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { native } from "@capsem/native";
import { expect, onTestFinished, test } from "vitest";
import { hypervisorFilter } from "./hypervisor-filter.ts";
import type { Profile } from "./profile.ts";
import { EGRESS_PROFILE } from "./profile-egress.ts";
import { GATEWAY_PROFILE } from "./profile-gateway.ts";
import { LEDGER_PROFILE } from "./profile-ledger.ts";
import { OWNER_PROFILE } from "./profile-owner.ts";
import { AGGREGATOR_PROFILE, BUILTIN_PROFILE, PROXY_PROFILE } from "./profile-worker.ts";
import { buildAttacker, loosened } from "./testing/attacker.ts";

/** A busy machine takes its time; who is done goes on at once. */
const SOON = { interval: 5, timeout: 10_000 };

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable) console.log("skipped: attacks in the kernel's own words, because this kernel has no Landlock");
const attacked = test.skipIf(!usable);
const attacker = usable ? buildAttacker() : null;
const { folder = "", under, launched } = attacker ?? ({} as never);

/** How many connections came, and where to. */
async function listening(where: { path: string } | { host: string; port: number }) {
  let count = 0;
  const server: Server = createServer((socket) => {
    count += 1;
    socket.on("error", () => socket.destroy());
    socket.end();
  });
  server.listen(where);
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const address = server.address();
  return { port: typeof address === "object" ? String(address?.port) : "", count: () => count };
}

attacked("nobody dials by sending on a socket that is not connected", async () => {
  const { port, count } = await listening({ host: "127.0.0.1", port: 0 });
  const dial = (profile: Profile) => under(profile, ["dial by sending"], { TCP_PORT: port });
  for (const [at, profile] of [OWNER_PROFILE, GATEWAY_PROFILE].entries()) {
    expect(await dial(loosened(profile, ["sendmsg"]))).toEqual({ "dial by sending": "done" });
    await expect.poll(count, SOON).toBe(at + 1);
    expect(await dial(profile)).toEqual({ "dial by sending": "EPERM" });
    expect(count()).toBe(at + 1);
  }
});

attacked("a gateway's listener cannot be shut down and then dial", async () => {
  const { port, count } = await listening({ host: "127.0.0.1", port: 0 });
  const dial = (profile = GATEWAY_PROFILE) => under(profile, ["dial by listener"], { TCP_PORT: port });
  const { "dial by listener": end } = await dial(loosened(GATEWAY_PROFILE, ["shutdown", "sendmsg"]));
  // Some kernels let nothing dial that has listened.
  expect(["done", "EINVAL"]).toContain(end);
  await expect.poll(count, SOON).toBe(end === "done" ? 1 : 0);
  // Either gate alone stands, too.
  expect(await dial(loosened(GATEWAY_PROFILE, ["shutdown"]))).toEqual({ "dial by listener": "EPERM" });
  expect(await dial(loosened(GATEWAY_PROFILE, ["sendmsg"]))).toEqual({ "dial by listener": "EPERM" });
  expect(await dial()).toEqual({ "dial by listener": "EPERM" });
  expect(count()).toBe(end === "done" ? 1 : 0);
});

attacked("a gateway cannot write over its log, which it could once it appends no more", async () => {
  const log = join(folder, "log");
  const overwrite = async (profile = GATEWAY_PROFILE) => {
    writeFileSync(log, "history\n");
    const ends = await under(profile, ["overwrite log", "append log"], { LOG: log });
    return { ends, text: readFileSync(log, "utf8") };
  };
  expect(await overwrite(loosened(GATEWAY_PROFILE, ["fcntl"]))).toEqual({
    ends: { "overwrite log": "done", "append log": "done" },
    text: "forgedmore\n",
  });
  expect(await overwrite()).toEqual({
    ends: { "overwrite log": "EPERM", "append log": "done" },
    text: "history\nmore\n",
  });
});

const WORKERS = [PROXY_PROFILE, AGGREGATOR_PROFILE, BUILTIN_PROFILE];
attacked.each([OWNER_PROFILE, GATEWAY_PROFILE, LEDGER_PROFILE, ...WORKERS, EGRESS_PROFILE])(
  "a sealed $name reads its limits and changes none",
  async (profile) => {
    const acts = ["read limits", "change limits"];
    expect(await under(loosened(profile, ["prlimit64"]), acts)).toEqual({
      "read limits": "done",
      "change limits": "done",
    });
    expect(await under(profile, acts)).toEqual({ "read limits": "done", "change limits": "EPERM" });
  },
);

attacked(
  "a hypervisor dials no Unix socket by its path and sends no datagram, also without a network namespace",
  async () => {
    const path = join(folder, "service.sock");
    const { count } = await listening({ path });
    chmodSync(path, 0o600);
    const udp = createSocket("udp4");
    let datagrams = 0;
    udp.on("message", () => {
      datagrams += 1;
    });
    udp.bind(0, "127.0.0.1");
    await once(udp, "listening");
    onTestFinished(() => void udp.close());
    const env = { UNIX_SOCKET: path, UDP_PORT: String(udp.address().port) };
    const acts = ["dial by path", "datagram"];
    const filter = hypervisorFilter(process.arch) ?? new Uint8Array();
    // Landlock in force, and a machine without network namespaces; then one that has them.
    expect(await launched({ netNamespace: "off" }, acts, env)).toEqual({
      "dial by path": "done",
      datagram: "done",
    });
    await expect.poll(() => [count(), datagrams], SOON).toEqual([1, 1]);
    expect(await launched({ netNamespace: "try" }, ["dial by path"], env)).toEqual({
      "dial by path": "done",
    });
    await expect.poll(count, SOON).toBe(2);
    expect(await launched({ netNamespace: "off", filter }, acts, env)).toEqual({
      "dial by path": "EPERM",
      datagram: "EPERM",
    });
    expect([count(), datagrams]).toEqual([2, 1]);
  },
);

attacked("a hypervisor signals its own threads alone, and stays bound to its parent's life", async () => {
  const mine = ["signal own thread"];
  const others = ["signal parent", "signal thread of parent", "survive parent"];
  // Without Landlock, whose newer versions forbid signals too.
  const free = await launched({ landlock: "off" }, [...mine, ...others]);
  expect(free).toEqual(Object.fromEntries([...mine, ...others].map((act) => [act, "done"])));
  const filter = hypervisorFilter(process.arch) ?? new Uint8Array();
  const bound = await launched({ landlock: "off", filter }, [...mine, ...others]);
  expect(bound).toEqual({
    "signal own thread": "done",
    ...Object.fromEntries(others.map((act) => [act, "EPERM"])),
  });
});
