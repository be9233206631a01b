import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Readable } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { LAUNCH_STEPS, type Launch, launchWords } from "./launcher.ts";
import { native } from "./native.ts";
import { buildFixture, copyForAll, distDir, launcherSource } from "./native-fixture.ts";
import type { Grants } from "./qemu-confinement.ts";

await buildFixture();

const launcherPath = join(distDir, "capsem-launch");
const user = { uid: 200_001, gid: 200_001 };
const programs = ["/usr", "/lib", "/lib64"].filter((path) => existsSync(path));
const system: Grants = { read: ["/proc"], exec: programs };

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

function start(
  file: string,
  args: readonly string[],
  extraStdio: number[] = [],
  env = process.env,
  uid?: number,
): Ended {
  const { status, stdout, stderr } = spawnSync(file, args, {
    stdio: ["ignore", "pipe", "pipe", ...extraStdio],
    encoding: "utf8",
    timeout: 10_000,
    env,
    ...(uid === undefined ? {} : { uid, gid: uid }),
  });
  return { code: status, stdout, stderr };
}

/** Runs a command to its end under the launcher. `extraStdio` become descriptors 3 and up. */
function run(
  command: string,
  args: readonly string[],
  change: Partial<Launch> = {},
  extraStdio: number[] = [],
): Ended {
  const launch = { parentPid: process.pid, command, args, user, grants: system, ...change };
  const words = launchWords(launch, launcherPath);
  return start(words.file, words.args, extraStdio);
}

const isRoot = process.getuid?.() === 0;
const usable = isRoot ? run("/bin/true", []) : { code: 91, stderr: "not started as root" };
if (usable.code !== 0) console.log(`skipped: the launcher's tests, because ${usable.stderr.trim()}`);
const confined = test.skipIf(usable.code !== 0);

function statusOf(text: string): Map<string, string> {
  const rows = text.split("\n").map((line) => line.split(":\t"));
  return new Map(rows.map(([name, value]) => [name ?? "", value?.trim() ?? ""]));
}

confined("the command has the user, no group, no capability, no new privileges", () => {
  const ended = run("/bin/cat", ["/proc/self/status"]);
  expect(ended).toMatchObject({ code: 0, stderr: "" });
  const status = statusOf(ended.stdout);
  expect(status.get("Uid")).toBe("200001\t200001\t200001\t200001");
  expect(status.get("Gid")).toBe("200001\t200001\t200001\t200001");
  expect(status.get("Groups")).toBe("");
  for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
    expect([set, status.get(set)]).toEqual([set, "0000000000000000"]);
  expect(status.get("NoNewPrivs")).toBe("1");
});

confined("root that stays root has no capability either", () => {
  const launch: Launch = { parentPid: process.pid, command: "/bin/cat", args: [], grants: system };
  const words = launchWords({ ...launch, args: ["/proc/self/status"], asRoot: true }, launcherPath);
  const status = statusOf(start(words.file, words.args).stdout);
  expect(status.get("Uid")).toBe("0\t0\t0\t0");
  expect(status.get("CapEff")).toBe("0000000000000000");
  expect(status.get("CapBnd")).toBe("0000000000000000");
});

confined("root that stays root keeps the capabilities that were named, over an exec, and no other", () => {
  const launch: Launch = {
    parentPid: process.pid,
    command: "/bin/cat",
    args: [],
    grants: system,
    asRoot: true,
  };
  const words = launchWords(
    { ...launch, args: ["/proc/self/status"], capabilities: ["setuid", "setgid", "kill"] },
    launcherPath,
  );
  const status = statusOf(start(words.file, words.args).stdout);
  // CAP_KILL, CAP_SETGID, CAP_SETUID: bits 5, 6, 7.
  for (const set of ["CapInh", "CapPrm", "CapEff", "CapAmb"])
    expect([set, status.get(set)]).toEqual([set, "00000000000000e0"]);
  expect(status.get("CapBnd")).toBe("0000000000000000");
  expect(status.get("NoNewPrivs")).toBe("1");
});

confined("what it keeps is enough to launch a command of another user, which keeps nothing", () => {
  const inner: Launch = {
    ...{ parentPid: 1, command: "/bin/cat", args: ["/proc/self/status"], user, netNamespace: "off" as const },
    grants: system,
  };
  const innerWords = launchWords(inner, launcherPath);
  innerWords.args[innerWords.args.indexOf("--parent") + 1] = "$$";
  const script = `${innerWords.file} ${innerWords.args.join(" ")} & wait $!`;
  const outer = (capabilities: NonNullable<Launch["capabilities"]>) => {
    // A shell opens /dev/null for what it starts beside itself.
    const grants = { ...system, exec: [...programs, launcherPath], write: ["/dev/null"] };
    const words = launchWords(
      {
        ...{ parentPid: process.pid, command: "/bin/sh", args: ["-c", script], grants },
        ...{ asRoot: true, capabilities },
      },
      launcherPath,
    );
    return start(words.file, words.args);
  };
  expect(outer([])).toMatchObject({ code: 96, stderr: "capsem-launch: setgroups: EPERM\n" });
  const status = statusOf(outer(["setuid", "setgid"]).stdout);
  expect(status.get("Uid")).toBe("200001\t200001\t200001\t200001");
  expect(status.get("CapPrm")).toBe("0000000000000000");
  expect(status.get("CapAmb")).toBe("0000000000000000");
});

confined("an unprivileged caller gets namespaces and no capability", () => {
  const words = launchWords(
    { parentPid: process.pid, command: "/bin/cat", args: ["/proc/self/status"], grants: system },
    copyForAll(launcherPath),
  );
  const ended = start(words.file, words.args, [], process.env, 65_534);
  rmSync(dirname(words.file), { recursive: true });
  expect(ended).toMatchObject({ code: 0, stderr: "" });
  const status = statusOf(ended.stdout);
  expect(status.get("Uid")).toBe("65534\t65534\t65534\t65534");
  expect(status.get("CapEff")).toBe("0000000000000000");
  expect(status.get("CapBnd")).toBe("0000000000000000");
  expect(status.get("NoNewPrivs")).toBe("1");
});

confined("a file is read without Landlock and denied with it, unless it is granted", () => {
  const read = (change: Partial<Launch>) => run("/bin/cat", ["/etc/passwd"], change);
  expect(read({ landlock: "off" })).toMatchObject({ code: 0, stderr: "" });
  const denied = read({});
  expect(denied).toMatchObject({ code: 1, stdout: "" });
  expect(denied.stderr).toContain("Permission denied");
  expect(read({ landlock: "try" }).code).toBe(1);
  expect(read({ grants: { ...system, read: ["/etc/passwd"] } }).stdout).toContain("root:");
});

confined("a program is executed only from the exec list", () => {
  const grants = { read: programs, exec: ["/bin/sh", "/lib64/ld-linux-x86-64.so.2"] };
  const script = "echo started; /bin/ls / || exit 7";
  expect(run("/bin/sh", ["-c", script], { landlock: "off" }).code).toBe(0);
  expect(run("/bin/sh", ["-c", script], { grants })).toMatchObject({ code: 7, stdout: "started\n" });
  expect(run("/bin/ls", ["/"], { grants })).toMatchObject({
    code: 99,
    stderr: "capsem-launch: /bin/ls: EACCES\n",
  });
});

confined("a folder is written only when it is in the write list", () => {
  const folder = mkdtempSync(join(tmpdir(), "launch-"));
  chmodSync(folder, 0o777);
  const write = (name: string, change: Partial<Launch>) =>
    run("/bin/sh", ["-c", `echo x > ${join(folder, name)}`], change).code;
  expect(write("free", { landlock: "off" })).toBe(0);
  expect(write("denied", { grants: { ...system, read: ["/proc", folder] } })).not.toBe(0);
  expect(write("granted", { grants: { ...system, write: [folder] } })).toBe(0);
  expect(existsSync(join(folder, "denied"))).toBe(false);
  rmSync(folder, { recursive: true });
});

confined("folders are made, moved and removed only below a tree, and a write grant is none", () => {
  const folder = mkdtempSync(join(tmpdir(), "launch-"));
  chmodSync(folder, 0o777);
  const tend = (name: string, change: Partial<Launch>) => {
    const path = join(folder, name);
    const script = `mkdir ${path} && echo x > ${path}/a && mkdir ${path}/b && mv ${path}/a ${path}/b/a && rm -r ${path}`;
    return run("/bin/sh", ["-c", script], change).code;
  };
  const tools = [...system.exec, "/bin/mkdir", "/bin/mv", "/bin/rm"];
  const grants = { ...system, exec: tools };
  expect(tend("free", { landlock: "off" })).toBe(0);
  expect(tend("written", { grants: { ...grants, write: [folder] } })).not.toBe(0);
  expect(tend("tree", { grants, trees: [folder] })).toBe(0);
  expect(existsSync(join(folder, "written"))).toBe(false);
  rmSync(folder, { recursive: true });
});

confined(
  "an inherited memfd is opened again by its number, and a file when its descriptor is granted",
  () => {
    const folder = mkdtempSync(join(tmpdir(), "launch-"));
    writeFileSync(join(folder, "disk"), "disk", { mode: 0o644 });
    chmodSync(folder, 0o755);
    const disk = openSync(join(folder, "disk"), "r");
    const memory = native().memfdCreate("ram", 4);
    const read = (fd: number, change: Partial<Launch>) =>
      run("/bin/cat", [`/proc/self/fd/${fd}`], { keepFds: [4, 3], ...change }, [memory, disk]);
    expect(read(3, {})).toMatchObject({ code: 0, stdout: "\0\0\0\0" });
    expect(read(3, { readFds: [3] })).toMatchObject({ code: 0, stdout: "\0\0\0\0" });
    expect(read(4, {})).toMatchObject({ code: 1, stdout: "" });
    expect(read(4, { readFds: [4] })).toMatchObject({ code: 0, stdout: "disk" });
    native().closeDescriptor(memory);
    closeSync(disk);
    rmSync(folder, { recursive: true });
  },
);

confined("only the descriptors that are kept stay open", () => {
  // Opens nothing itself, which listing the folder would.
  const probe = "for fd in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/self/fd/$fd ] && echo $fd; done; true";
  const list = (keepFds: number[]) =>
    run("/bin/sh", ["-c", probe], { keepFds }, [0, 0, 0, 0, 0]).stdout.trim().split("\n");
  expect(list([])).toEqual(["0", "1", "2"]);
  expect(list([5])).toEqual(["0", "1", "2", "5"]);
  expect(list([7, 3, 4])).toEqual(["0", "1", "2", "3", "4", "7"]);
});

confined("the network namespace has no interface but lo, and no address is reachable", () => {
  const interfaces = readFileSync("/proc/net/dev", "utf8").match(/\w+(?=:)/g) ?? [];
  const inside = run("/bin/cat", ["/proc/net/dev"]).stdout.match(/\w+(?=:)/g) ?? [];
  expect(inside.filter((name) => !/^(lo|tunl|sit|ip6|gre|erspan)/.test(name))).toEqual([]);
  expect(inside).toContain("lo");
  expect(interfaces).toContain("lo");
  expect(run("/bin/cat", ["/proc/net/route"]).stdout.trim().split("\n").length).toBeLessThanOrEqual(1);
});

confined("the environment is cleared but for PATH and LANG", () => {
  const launch: Launch = { parentPid: process.pid, command: "/usr/bin/env", args: [], user, grants: system };
  const words = launchWords(launch, launcherPath);
  const all = { PATH: "/usr/bin:/bin", LANG: "C", HOME: "/root", SECRET: "x", LD_PRELOAD: "", LD_DEBUG: "" };
  expect(start(words.file, words.args, [], all).stdout.trim().split("\n")).toEqual([
    "PATH=/usr/bin:/bin",
    "LANG=C",
  ]);
  expect(start(words.file, words.args, [], {}).stdout).toBe("");
});

confined("named variables come beside PATH and LANG", () => {
  const ended = run("/usr/bin/env", [], { env: { OPENSSL_CONF: "/dev/null", EMPTY: "" } });
  expect(ended.stdout.trim().split("\n")).toEqual(
    expect.arrayContaining(["OPENSSL_CONF=/dev/null", "EMPTY="]),
  );
});

confined("without a namespace of its own the command sees the caller's", () => {
  const seen = (change: Partial<Launch>) => run("/bin/readlink", ["/proc/self/ns/net"], change).stdout.trim();
  expect(seen({ netNamespace: "off" })).toBe(readlinkSync("/proc/self/ns/net"));
  expect(seen({ netNamespace: "require" })).not.toBe(readlinkSync("/proc/self/ns/net"));
});

confined("a caller's tighter limit on open files stands", () => {
  const launch = { parentPid: 1, command: "/bin/cat", args: ["/proc/self/limits"], user, grants: system };
  const words = launchWords({ ...launch, openFilesMax: 4096 }, launcherPath);
  words.args[words.args.indexOf("--parent") + 1] = "$$";
  const ended = start("/bin/sh", ["-c", `ulimit -n 100; ${words.file} ${words.args.join(" ")} & wait $!`]);
  expect(ended.stdout).toMatch(/Max open files +100 +100/);
});

confined("the limits hold, core files never", () => {
  const ended = run("/bin/cat", ["/proc/self/limits"], { openFilesMax: 64, fileBytesMax: 4096 });
  expect(ended.stdout).toMatch(/Max open files +64 +64/);
  expect(ended.stdout).toMatch(/Max file size +4096 +4096/);
  expect(ended.stdout).toMatch(/Max core file size +0 +0/);
});

confined("the command leads a session of its own", () => {
  const { stdout } = run("/bin/cat", ["/proc/self/stat"]);
  const [pid, , , , group, session] = stdout.split(" ");
  expect([group, session]).toEqual([pid, pid]);
});

interface Family {
  parent: ChildProcess & { stdout: Readable };
  sleeperPid: number;
}

const SLEEPER = ["/bin/sh", "-c", "echo ready; exec sleep 60"] as const;

/** A parent that starts a sleeper and names its pid; both hold the parent's standard output, and nobody else. */
async function startFamily(words: readonly string[]): Promise<Family> {
  const program = `
    const [file, ...args] = process.argv.slice(1).map((word) => word === "PARENT" ? String(process.pid) : word);
    const child = require("node:child_process").spawn(file, args, { stdio: ["ignore", 1, 2] });
    require("node:fs").writeSync(1, "pid " + child.pid + "\\n");
    setInterval(() => 0, 1000);`;
  const parent = spawn(process.execPath, ["-e", program, "--", ...words], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void parent.kill("SIGKILL"));
  // The two lines come in either order, in one piece or in two.
  let text = "";
  while (!/^ready$/m.test(text) || !/^pid \d+$/m.test(text)) text += await once(parent.stdout, "data");
  return { parent, sleeperPid: Number(/\d+/.exec(text)?.[0]) };
}

confined("the command dies within 100 ms of its parent, which a plain child survives", async () => {
  const plain = await startFamily(SLEEPER);
  plain.parent.kill("SIGKILL");
  await once(plain.parent, "exit");
  expect(process.kill(plain.sleeperPid, 0)).toBe(true);
  process.kill(plain.sleeperPid, "SIGKILL");
  // The fastest of three: the machine may be busy, the kernel's signal is not what then takes long.
  const tookMs = [];
  for (let i = 0; i < 3; i++) tookMs.push(await deathTimeMs());
  expect(Math.min(...tookMs)).toBeLessThan(100);
});

async function deathTimeMs(): Promise<number> {
  const [command, ...args] = SLEEPER;
  const words = launchWords({ parentPid: 1, command, args, user, grants: system }, launcherPath);
  words.args[words.args.indexOf("--parent") + 1] = "PARENT";
  const { parent } = await startFamily([words.file, ...words.args]);
  const closed = once(parent.stdout, "close");
  const startMs = performance.now();
  parent.kill("SIGKILL");
  await closed;
  return performance.now() - startMs;
}

confined("a parent of another pid is refused", () => {
  expect(run("/bin/true", [], { parentPid: 1 })).toEqual({
    code: 90,
    stdout: "",
    stderr: "capsem-launch: parent: not the one that was named\n",
  });
});

confined("every step that fails ends with its own code and names itself in one line", () => {
  const failures: [number, string, Ended][] = [
    [93, "--keep-fd: EBADF", run("/bin/true", [], { keepFds: [50] })],
    [97, "/nowhere: ENOENT", run("/bin/true", [], { grants: { ...system, read: ["/nowhere"] } })],
    [97, "granted descriptor: EBADF", run("/bin/true", [], { readFds: [50] })],
    [99, "/bin/nowhere: ENOENT", run("/bin/nowhere", [])],
  ];
  for (const [code, text, ended] of failures)
    expect(ended).toEqual({ code, stdout: "", stderr: `capsem-launch: ${text}\n` });
});

test("what cannot be parsed is a usage error before anything else happens", () => {
  const parent = ["--parent", String(process.pid)];
  const wrong: string[][] = [
    [],
    ["--"],
    parent,
    [...parent, "--"],
    [...parent, "--", "true"],
    ["--", "/bin/true"],
    ["--parent", "0", "--", "/bin/true"],
    ["--parent", "-1", "--", "/bin/true"],
    ["--parent", "1x", "--", "/bin/true"],
    ["--parent", "99999999999999999999", "--", "/bin/true"],
    ["--parent"],
    [...parent, "--uid", "5", "--", "/bin/true"],
    [...parent, "--gid", "5", "--", "/bin/true"],
    [...parent, "--uid", "0", "--gid", "5", "--", "/bin/true"],
    [...parent, "--uid", "5", "--gid", "0", "--", "/bin/true"],
    [...parent, "--uid", "4294967295", "--gid", "5", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--unknown", "x", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--read", "relative", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--keep-fd", "2", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--keep-fd", "5", "--keep-fd", "5", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--landlock", "maybe", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--net-namespace", "maybe", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--capability", "sys_admin", "--", "/bin/true"],
    [...parent, "--uid", "5", "--gid", "5", "--capability", "kill", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--env", "NAME", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--env", "=value", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--filter", "", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--filter", "06000000000000", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--filter", "06000000 000000f", "--", "/bin/true"],
    [...parent, "--as-root-ok", "--filter", "06".repeat(8 * 1025), "--", "/bin/true"],
    [
      ...[...parent, "--as-root-ok", "--filter", "060000000000ff7f", "--filter", "060000000000ff7f"],
      ...["--", "/bin/true"],
    ],
    [
      ...[...parent, "--as-root-ok", ...Array.from({ length: 17 }, () => ["--env", "A=b"]).flat()],
      ...["--", "/bin/true"],
    ],
    ...(isRoot ? [[...parent, "--", "/bin/true"]] : []),
  ];
  for (const args of wrong) {
    const ended = start(launcherPath, args);
    expect([args, ended.code]).toEqual([args, 91]);
    expect(ended.stderr).toMatch(/^capsem-launch: [^\n]+\n$/);
  }
});

test("the table of steps is the launcher's own", () => {
  const source = readFileSync(launcherSource, "utf8");
  const steps = [...source.matchAll(/STEP_([A-Z]+) = (\d+),/g)].map(([, name, code]) => [
    code,
    name?.toLowerCase(),
  ]);
  expect(Object.fromEntries(steps)).toEqual(LAUNCH_STEPS);
});
