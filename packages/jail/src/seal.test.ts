import { spawn } from "node:child_process";
import { copyFileSync, existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { createServer, type Server, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { native } from "@capsem/native";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { addonPath, buildChild, type ChildOptions, runChild } from "./testing/child.ts";
import { CHILD_FILE_BYTES_MAX, FORBIDDEN_NAMES, NATIVE_NAMES } from "./testing/child-acts.ts";

vi.setConfig({ testTimeout: 60_000 });

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable) console.log("skipped: seals in real processes, because this kernel has no Landlock");
const sealed = test.skipIf(!usable);

const bundle = await buildChild("sealed-child");
const PROFILE_NAMES = ["owner", "gateway"] as const;

const world = { folder: "", servers: [] as Server[], env: {} as Record<string, string> };
beforeAll(async () => {
  world.folder = mkdtempSync(join(tmpdir(), "jail-world-"));
  const tcp = await listening({ host: "127.0.0.1", port: 0 });
  const address = tcp.address();
  // A copy: one that is loaded already would not be opened again.
  copyFileSync(addonPath, join(world.folder, "other.node"));
  const unix = join(world.folder, "x.sock");
  const abstract = `capsem-jail-${process.pid}`;
  await listening({ path: unix });
  await listening({ path: `\0${abstract}` });
  world.env = {
    TCP_PORT: String(typeof address === "object" ? address?.port : ""),
    UNIX_SOCKET: unix,
    ABSTRACT_SOCKET: abstract,
    OTHER_ADDON: join(world.folder, "other.node"),
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

const run = (options: ChildOptions) =>
  runChild(bundle, { ...options, env: { ...world.env, ...options.env } });

/** What can be asked of a process of its own group only: an answer proves that the kernel went to look. */
const ESRCH_IS_DONE = ["signal group"];

sealed("each forbidden act is done by a free process", async () => {
  const { ends } = await run({ profile: "owner", when: "free", acts: FORBIDDEN_NAMES });
  for (const name of FORBIDDEN_NAMES) {
    const done = ESRCH_IS_DONE.includes(name) ? ["", "ESRCH"] : [""];
    expect([name, done.includes(ends[name] ?? "missing")], ends[name]).toEqual([name, true]);
  }
  rmSync(join("/tmp", `capsem-jail-${process.pid}`), { force: true });
});

sealed.each(PROFILE_NAMES)(
  "each forbidden act fails in a sealed %s, in the main thread and in others",
  async (profile) => {
    const { code, ends } = await run({ profile, when: "sealed", acts: FORBIDDEN_NAMES });
    expect(code).toBe(0);
    expect(ends.missing).toBe("");
    const refusals = { dlopen: "ERR_DLOPEN_FAILED" } as Record<string, string>;
    for (const name of FORBIDDEN_NAMES) expect([name, ends[name]]).toEqual([name, refusals[name] ?? "EPERM"]);
  },
);

sealed(
  "each bare act meets the kernel in a free process, and the end of the process in a sealed one",
  async () => {
    const free = await run({ profile: "owner", when: "free", acts: NATIVE_NAMES });
    expect(Object.values(free.ends)).not.toContain("EPERM");
    for (const name of [
      "native execve",
      "native ptrace",
      "native unshare",
      "native mount",
      "native pidfd_getfd",
    ]) {
      const end = await run({ profile: "owner", when: "sealed", acts: [name] });
      expect([name, end.signal]).toEqual([name, "SIGSYS"]);
    }
    const soft = [
      "native fork",
      "native io_uring_setup",
      "native socket_inet",
      "native connect",
      "native bind",
    ];
    const end = await run({ profile: "owner", when: "sealed", acts: soft });
    for (const name of soft) expect([name, end.ends[name]]).toEqual([name, "EPERM"]);
  },
);

const ABILITIES = [
  "timers",
  "pool threads",
  "compiled code",
  "collector",
  "WebAssembly",
  "worker",
  "signal itself",
];

sealed.each(PROFILE_NAMES)("what Node needs still works in a sealed %s", async (profile) => {
  const { code, errors, ends } = await run({ profile, when: "sealed", acts: ABILITIES });
  expect([code, errors]).toEqual([0, ""]);
  for (const name of ABILITIES) expect([name, ends[name]]).toEqual([name, ""]);
});

sealed.each(PROFILE_NAMES)("a sealed %s talks over sockets that it inherited", async (profile) => {
  const [ours, theirs] = native().socketPair("stream");
  const echo = new Socket({ fd: ours, readable: true, writable: true });
  echo.on("data", (data) => echo.write(data));
  onTestFinished(() => void echo.destroy());
  const { ends } = await run({
    profile,
    when: "sealed",
    acts: ["inherited socket"],
    descriptors: [theirs],
    env: { ECHO_FD: "3" },
  });
  native().closeDescriptor(theirs);
  expect(ends["inherited socket"]).toBe("");
});

sealed("a sealed gateway takes a socket that is granted to it", async () => {
  const [ours, theirs] = native().socketPair("seqpacket");
  const [near, far] = native().socketPair("stream");
  const service = new Socket({ fd: near, readable: true, writable: true });
  service.on("data", () => service.end("answer"));
  native().sendDescriptors(ours, Buffer.from("x"), [far]);
  const { ends } = await run({
    profile: "gateway",
    when: "sealed",
    acts: ["granted socket"],
    descriptors: [theirs],
    env: { GRANTS_FD: "3" },
  });
  for (const each of [ours, theirs, far]) native().closeDescriptor(each);
  expect(ends).toMatchObject({ missing: "", "granted socket": "" });
});

sealed("a sealed owner writes output files in its own folder, nowhere else, and reads none", async () => {
  const own = mkdtempSync(join(tmpdir(), "jail-own-"));
  onTestFinished(() => rmSync(own, { recursive: true, force: true }));
  const { ends } = await run({
    profile: "owner",
    when: "sealed",
    acts: ["spool", "spool elsewhere", "read a spool"],
    write: [own],
    env: { SPOOL_FOLDER: own, OTHER_FOLDER: world.folder },
  });
  // Landlock's word is EACCES, the filter's EPERM.
  expect(ends).toMatchObject({ spool: "", "spool elsewhere": "EACCES", "read a spool": "EPERM" });
  expect(existsSync(join(world.folder, "job.ring"))).toBe(false);
});

sealed("a sealed owner's files end at their limit, which a free one's do not", async () => {
  const own = mkdtempSync(join(tmpdir(), "jail-own-"));
  onTestFinished(() => rmSync(own, { recursive: true, force: true }));
  const grow = async (when: "free" | "sealed") => {
    const env = { SPOOL_FOLDER: own };
    const { ends } = await run({ profile: "owner", when, acts: ["grow a file"], write: [own], env });
    return [ends["grow a file"], statSync(join(own, "large.ring")).size];
  };
  expect(await grow("free")).toEqual(["", 1024 ** 4 + 1]);
  expect(await grow("sealed")).toEqual(["EFBIG", CHILD_FILE_BYTES_MAX]);
});

sealed("a sealed owner hands a descriptor over the one socket that is named, and over no other", async () => {
  const [ours, theirs] = native().socketPair("stream");
  const send = async (env: Record<string, string>) => {
    const options = { profile: "owner", when: "sealed", acts: ["hand over"], descriptors: [theirs] } as const;
    return (await run({ ...options, env: { HANDED_FD: "3", ...env } })).ends["hand over"];
  };
  expect(await send({ CONTROL_SOCKET: "3" })).toBe("");
  expect(
    native()
      .receiveDescriptors(ours, 1)
      .fds.map((fd) => native().closeDescriptor(fd)),
  ).toHaveLength(1);
  expect(await send({ CONTROL_SOCKET: "5" })).toBe("EPERM");
  expect(await send({})).toBe("EPERM");
  for (const each of [ours, theirs]) native().closeDescriptor(each);
});

sealed("a process without a network namespace of its own says so, and is confined all the same", async () => {
  const { ends } = await run({ profile: "owner", when: "sealed", acts: ["dial TCP"] });
  expect(ends).toMatchObject({ missing: "", "dial TCP": "EPERM" });
  expect(ends.notes).toContain("no network namespace");
  const apart = await run({ profile: "owner", when: "sealed", acts: [], netNamespace: "require" });
  expect(apart.ends).toMatchObject({ missing: "", notes: "" });
});

sealed("a sealed owner signals its hypervisor, and a sealed gateway nobody", async () => {
  const hypervisor = spawn("sleep", ["60"], { stdio: "ignore" });
  onTestFinished(() => void hypervisor.kill("SIGKILL"));
  const env = { HYPERVISOR_PID: String(hypervisor.pid) };
  const acts = ["signal hypervisor"];
  const ask = async (options: Partial<ChildOptions>) =>
    (await run({ profile: "owner", when: "sealed", acts, env, ...options })).ends["signal hypervisor"];
  expect(await ask({ when: "free" })).toBe("");
  expect(await ask({ when: "tried", landlock: "off" })).toBe("");
  expect(await ask({ profile: "gateway", when: "tried", landlock: "off" })).toBe("EPERM");
});

sealed("an abort still leaves by its own signal", async () => {
  expect((await run({ profile: "owner", when: "sealed", acts: ["abort"] })).signal).toBe("SIGABRT");
});

sealed("without Landlock a seal is refused by name, unless it may go without", async () => {
  const refused = await run({ profile: "owner", when: "sealed", acts: [], landlock: "off" });
  expect(refused).toMatchObject({
    code: 1,
    ends: {
      failed:
        "Cannot confine the owner: Landlock is not in force: the process was not started by capsem-launch",
    },
  });
  const tried = await run({ profile: "owner", when: "tried", acts: ["readFileSync"], landlock: "off" });
  expect(tried.ends.missing).toContain("Landlock is not in force");
  // What could be had is had.
  expect(tried.ends.readFileSync).toBe("EPERM");
});
