import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { EXIT_CODES } from "./run-service.ts";
import { bundled } from "./testing/bundle.ts";
import { type Client, createClient } from "./testing/client.ts";
import { storeFakeGolden } from "./testing/fake-machinery.ts";
import type { FakeScript } from "./testing/fake-script.ts";
import { killAll, pidsNaming, pidsWith } from "./testing/rig.ts";
import { errorOf, type VmShown } from "./testing/use-rigs.ts";

vi.setConfig({ testTimeout: 90_000, hookTimeout: 60_000 });

interface Daemon {
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  readonly errors: () => string;
}

/** Only root can make what another user would. */
const isRoot = process.getuid?.() === 0;
const STRANGER = 4_242;

const daemons: Daemon[] = [];
const homes: string[] = [];
const roots: string[] = [];
afterEach(async () => {
  for (const { child, exited } of daemons.splice(0)) {
    child.kill("SIGKILL");
    await exited;
  }
  for (const home of homes.splice(0)) {
    await expect.poll(() => pidsNaming(home), { timeout: 30_000 }).toEqual([]);
    killAll(pidsWith(`HOME=${home}`));
    rmSync(home, { recursive: true, force: true });
    rmSync(roots.shift() ?? home, { recursive: true, force: true });
  }
});

function newHome(name = "home", script: FakeScript = {}): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "capsem-process-")));
  roots.push(root);
  const home = join(root, name);
  mkdirSync(home, { recursive: true });
  homes.push(home);
  writeFileSync(join(home, "fake-owner.json"), JSON.stringify(script));
  storeFakeGolden(join(home, "goldens"), "1-512");
  return home;
}

function start(home: string, env: Record<string, string> = {}): Daemon {
  const child = spawn(process.execPath, [bundled("fake-service"), home, bundled("fake-owner")], {
    stdio: ["ignore", "ignore", "pipe"],
    env: { PATH: process.env.PATH ?? "", CAPSEM_POOL_SIZE: "0", ...env },
  });
  let errors = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    errors += chunk.toString();
  });
  const exited = new Promise<number | null>((resolve) => child.on("close", (code) => resolve(code)));
  const daemon = { child, exited, errors: () => errors };
  daemons.push(daemon);
  return daemon;
}

async function untilAnswers(home: string): Promise<Client> {
  const folder = openSync(join(home, "run"), "r");
  const client = createClient(`/proc/self/fd/${folder}/service.sock`);
  await expect
    .poll(
      () =>
        client.get("/health").then(
          ({ status }) => status,
          () => 0,
        ),
      { timeout: 30_000 },
    )
    .toBe(200);
  return client;
}

async function running(home: string): Promise<{ daemon: Daemon; client: Client }> {
  mkdirSync(join(home, "run"), { recursive: true });
  const daemon = start(home);
  return { daemon, client: await untilAnswers(home) };
}

async function created(client: Client, body: unknown): Promise<string> {
  const reply = await client.post("/vms/create", body);
  expect(reply.status, reply.bytes.toString()).toBe(200);
  return reply.json<VmShown>().id;
}

test("two services of one home never run at once, and the loser touches nothing", async () => {
  const home = newHome();
  const { daemon, client } = await running(home);
  const pid = readFileSync(join(home, "run", "service.pid"), "utf8");
  expect(Number(pid)).toBe(daemon.child.pid);
  const before = statSync(join(home, "run", "service.sock")).ino;
  const readLog = () => readFileSync(join(home, "logs", "service.jsonl"), "utf8");
  await expect.poll(readLog, { timeout: 30_000 }).toContain("ready for VMs");
  const log = readLog().length;
  const loser = start(home);
  expect(await loser.exited).toBe(EXIT_CODES.alreadyRunning);
  expect(loser.errors()).toContain("another one runs");
  expect(readFileSync(join(home, "run", "service.pid"), "utf8")).toBe(pid);
  expect(statSync(join(home, "run", "service.sock")).ino).toBe(before);
  // The probing of `untilAnswers` may still be logged; a second start would not be.
  expect(readLog().slice(log)).not.toContain("service started");
  expect((await client.get("/status")).json()).toMatchObject({ pid: Number(pid) });
});

test("a stop ends VMs in order and takes the socket and pid file away", async () => {
  const home = newHome();
  const { daemon, client } = await running(home);
  const kept = await created(client, { name: "kept" });
  await created(client, {});
  daemon.child.kill("SIGTERM");
  expect(await daemon.exited).toBe(0);
  expect(readdirSync(join(home, "run"))).toEqual(["service.lock"]);
  expect(readdirSync(join(home, "vms"))).toEqual([kept]);
  expect(pidsNaming(home)).toEqual([]);
  const next = await running(home);
  // It was asked for, so there is nothing to explain; and nothing to tell of the service that ended.
  expect((await next.client.get("/vms/list")).json()).toMatchObject({
    vms: [{ id: kept, state: "stopped", reason: null }],
  });
  expect((await next.client.get("/panics")).json()).toMatchObject({ panics: [] });
});

test("after kill -9 a restart reaps orphans, frees names and finishes what was begun", async () => {
  const home = newHome("home", { hypervisorOutlives: true });
  const { daemon, client } = await running(home);
  const kept = await created(client, { name: "kept" });
  const temporary = await created(client, {});
  await client.post(`/vms/${kept}/exec`, { command: "echo data > file; sync" });
  const owners = pidsNaming(home);
  // A frozen owner does not notice that its service is gone: only the next service can end it.
  for (const pid of owners) process.kill(pid, "SIGSTOP");
  daemon.child.kill("SIGKILL");
  await daemon.exited;
  expect(pidsNaming(home)).toEqual(owners);
  const half = join(home, "vms", "vm_aaaaaaaaaaaaaaaa");
  mkdirSync(half);
  writeFileSync(join(half, "disk.qcow2"), "half made");
  const doomed = { ...JSON.parse(readFileSync(join(home, "vms", kept, "vm.json"), "utf8")), name: "doomed" };
  const deleting = join(home, "vms", "vm_bbbbbbbbbbbbbbbb");
  mkdirSync(deleting);
  writeFileSync(
    join(deleting, "vm.json"),
    JSON.stringify({ ...doomed, id: "vm_bbbbbbbbbbbbbbbb", state: "deleting" }),
  );

  const next = await running(home);
  expect(pidsNaming(home)).toEqual([]);
  expect((await next.client.get("/vms/list")).json<{ vms: VmShown[] }>().vms).toMatchObject([
    { id: kept, name: "kept", state: "stopped", reason: "service_lost" },
  ]);
  expect((await next.client.get(`/vms/${temporary}/info`)).status).toBe(404);
  expect(readdirSync(join(home, "vms"))).toEqual([kept]);
  await created(next.client, { name: "doomed" });
  expect(errorOf(await next.client.post("/vms/create", { name: "kept" })).kind).toBe("name_taken");
  await next.client.post(`/vms/${kept}/start`);
  const exec = await next.client.post(`/vms/${kept}/exec`, { command: "cat file" });
  expect(exec.json()).toMatchObject({ stdout: { data: "data\n" } });
});

test("owners end by themselves when their service is killed", async () => {
  const home = newHome();
  const { daemon, client } = await running(home);
  await created(client, {});
  daemon.child.kill("SIGKILL");
  await daemon.exited;
  await expect.poll(() => pidsNaming(home), { timeout: 10_000 }).toEqual([]);
});

test("a service that was killed is a panic of the next one, once", async () => {
  const home = newHome();
  const { daemon, client } = await running(home);
  await client.get("/status");
  const pid = daemon.child.pid;
  daemon.child.kill("SIGKILL");
  await daemon.exited;
  const next = await running(home);
  const panics = async ({ client }: { client: Client }) =>
    (await client.get("/panics")).json<{ panics: Record<string, unknown>[] }>().panics;
  const found = await panics(next);
  expect(found).toMatchObject([
    {
      ...{ process: "service", pid, frames: [] },
      message: "the previous service ended without a word (killed, or the machine stopped)",
      location: expect.stringMatching(/^its log ends at \d{4}-/),
    },
  ]);
  next.daemon.child.kill("SIGTERM");
  await next.daemon.exited;
  expect(await panics(await running(home))).toEqual(found);
});

test("stale sockets and pid files are replaced", async () => {
  const home = newHome();
  mkdirSync(join(home, "run"));
  writeFileSync(join(home, "run", "service.sock"), "stale");
  writeFileSync(join(home, "run", "service.pid"), "1\n");
  const { daemon } = await running(home);
  expect(Number(readFileSync(join(home, "run", "service.pid"), "utf8"))).toBe(daemon.child.pid);
  expect(statSync(join(home, "run", "service.sock")).mode & 0o777).toBe(0o600);
});

test("a home of more bytes than a socket path may have works", async () => {
  const home = newHome(join("x".repeat(100), "y".repeat(100)));
  const { client } = await running(home);
  expect((await client.get("/status")).json()).toMatchObject({ home });
  await client.delete(`/vms/${await created(client, {})}/delete`);
});

test("a home of a newer version is refused and left as it is", async () => {
  const home = newHome();
  writeFileSync(join(home, "schema.json"), '{"version":99}');
  const daemon = start(home);
  expect(await daemon.exited).toBe(EXIT_CODES.homeRefused);
  expect(daemon.errors()).toContain("newer than 1");
  expect(existsSync(join(home, "vms"))).toBe(false);
});

test("settings that are wrong are named", async () => {
  const home = newHome();
  writeFileSync(join(home, "settings.json"), '{"pool_sise":1}');
  const daemon = start(home);
  expect(await daemon.exited).toBe(EXIT_CODES.failed);
  expect(daemon.errors()).toContain("pool_sise");
});

test("an uncaught error leaves a panic file and ends the process", async () => {
  const home = newHome();
  const daemon = start(home, { FAKE_PANIC: "1" });
  expect(await daemon.exited).toBe(EXIT_CODES.panic);
  const [name = ""] = readdirSync(join(home, "logs", "panics"));
  const panic = JSON.parse(readFileSync(join(home, "logs", "panics", name), "utf8")) as Record<
    string,
    unknown
  >;
  expect(panic).toMatchObject({ process: "service", message: "Error: scripted panic" });
});

test.runIf(isRoot).each(["", "run", "logs", "vms", "tmp", "logs/panics"])(
  "a home whose folder %j another user made is refused, with its owner and what to do",
  async (name) => {
    const home = newHome();
    const folder = join(home, name);
    mkdirSync(folder, { recursive: true });
    chownSync(folder, STRANGER, STRANGER);
    chmodSync(folder, 0o777);
    const daemon = start(home);
    expect(await daemon.exited).toBe(EXIT_CODES.homeRefused);
    expect(daemon.errors()).toContain(`Cannot use "${folder}": it belongs to user ${STRANGER}`);
    expect(daemon.errors()).toContain("choose another home");
  },
);

test("folders of ours that others could write are closed, and the service starts", async () => {
  const home = newHome();
  chmodSync(home, 0o777);
  mkdirSync(join(home, "run"));
  chmodSync(join(home, "run"), 0o775);
  await running(home);
  for (const name of [".", "run", "vms", "logs"]) expect(statSync(join(home, name)).mode & 0o777).toBe(0o700);
});

test("a home is reached through a link, and named by its real path", async () => {
  const home = newHome();
  symlinkSync(home, `${home}-link`);
  mkdirSync(join(home, "run"));
  const daemon = start(`${home}-link`);
  const client = await untilAnswers(home);
  expect((await client.get("/status")).json()).toMatchObject({ home });
  expect(await start(home).exited).toBe(EXIT_CODES.alreadyRunning);
  daemon.child.kill("SIGKILL");
});

test("a log that is a link or a second name writes into nobody's file, and that is said", async () => {
  const home = newHome();
  const victim = join(home, "victim");
  writeFileSync(victim, "keep\n");
  mkdirSync(join(home, "logs"));
  symlinkSync(victim, join(home, "logs", "service.jsonl"));
  const { daemon } = await running(home);
  await expect.poll(() => daemon.errors()).toContain("Cannot write its log");
  expect(readFileSync(victim, "utf8")).toBe("keep\n");
});

test("nothing of a running service can be taken by another user to keep the next one from starting", async () => {
  const home = newHome();
  for (const folder of [join(home, ".."), home]) chmodSync(folder, 0o755);
  const { daemon } = await running(home);
  chmodSync(join(home, "run"), 0o755);
  // Every user may read the names of abstract sockets, and bind one that is free.
  expect(readFileSync("/proc/net/unix", "utf8")).not.toMatch(/@capsem-service/);
  daemon.child.kill("SIGKILL");
  await daemon.exited;
  if (isRoot) {
    const lock = join(home, "run", "service.lock");
    const attack = () =>
      execFileSync("setpriv", [`--reuid=${STRANGER}`, "--clear-groups", "flock", "-n", lock, "true"], {
        stdio: "pipe",
      });
    expect(attack).toThrow("Permission denied");
    chmodSync(lock, 0o644);
    expect(attack).not.toThrow();
  }
  await running(home);
  expect(statSync(join(home, "run", "service.lock")).mode & 0o777).toBe(0o600);
});

test("a pipe in the place of a record or of the settings does not hold up the start", async () => {
  const home = newHome();
  const folder = join(home, "vms", "vm_aaaaaaaaaaaaaaaa");
  mkdirSync(folder, { recursive: true });
  for (const name of ["vm.json", "processes.json"]) execFileSync("mkfifo", [join(folder, name)]);
  const { client } = await running(home);
  expect((await client.get("/vms/list")).json()).toMatchObject({
    vms: [{ id: "vm_aaaaaaaaaaaaaaaa", state: "failed", reason: "record_unreadable" }],
  });
  const other = newHome("other");
  execFileSync("mkfifo", [join(other, "settings.json")]);
  const daemon = start(other);
  expect(await daemon.exited).toBe(EXIT_CODES.failed);
  expect(daemon.errors()).toContain("it is no file");
});
