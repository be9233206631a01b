/**
 * The real bundled agent and the real helper on the machine that runs the tests: lanes over Unix sockets, and
 * a scratch workload root in a mount namespace of its own. Only root can build it.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { buildSync } from "esbuild";
import { putHelper } from "../../../guest-image/helper/testing/compiled.ts";

/** Why these tests cannot run here; undefined when they can. */
export function skipReason(): string | undefined {
  if (process.platform !== "linux") return "not Linux";
  if (process.getuid?.() !== 0) return "not root";
  try {
    execFileSync("unshare", ["-mpiunC", "--fork", "gcc", "--version"], { stdio: "ignore" });
    return undefined;
  } catch (cause) {
    return `no namespaces or no gcc: ${String(cause)}`;
  }
}

/** A root made of the host's /usr, with the devices and accounts that commands expect. */
const SCRIPT = `
set -e
mount --make-rprivate /
mount -t tmpfs -o nodev tmpfs /mnt
mkdir /mnt/root /mnt/disk
mount -t tmpfs -o nodev,mode=755 tmpfs /mnt/root
cd /mnt/root
mkdir usr etc proc sys run tmp dev workspace home home/user root
mount --bind /usr usr
mount -o remount,bind,ro usr
for d in bin sbin lib lib64; do ln -s usr/$d $d; done
cp /etc/ld.so.cache etc/
printf 'root:x:0:0::/root:/bin/bash\\nuser:x:1000:1000::/home/user:/bin/bash\\n' > etc/passwd
printf 'root:x:0:\\nextra:x:2000:user\\nuser:x:1000:\\n' > etc/group
echo plain > etc/hostname
echo secret > etc/secret; chmod 600 etc/secret
chmod 1777 tmp; chown 1000:1000 workspace home/user
mount -t tmpfs -o mode=755 tmpfs dev
mount -t tmpfs -o mode=755 tmpfs run
mkdir dev/pts dev/shm
mknod -m 666 dev/null c 1 3; mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/urandom c 1 9; mknod -m 666 dev/tty c 5 0
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd; ln -s /proc/self/fd/1 dev/stdout; ln -s /proc/self/fd/2 dev/stderr
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p $CGROUP
cd /
while [ ! -e "$STOP" ]; do "$@" || true; done
`;

/** The workload dies with the agent, but not at once. */
const SWEEP = `
mount -t cgroup2 cgroup2 /mnt
for i in $(seq 100); do find "/mnt/$1" -depth -type d -exec rmdir {} + && exit 0; sleep 0.1; done
exit 1
`;

/** Root for the lanes' sockets, the bundle and the helper. */
export class AgentRig {
  readonly dir: string;
  readonly cgroup: string;
  readonly #servers: Server[] = [];
  readonly #arrivals = { control: new Arrivals(), bulk: new Arrivals(), traffic: new Arrivals() };
  #child: ChildProcess | undefined;
  log = "";

  constructor() {
    this.dir = mkdtempSync(join(tmpdir(), "capsem-guest-"));
    this.cgroup = `/sys/fs/cgroup/${basename(this.dir)}`;
  }

  async start(): Promise<void> {
    const { dir } = this;
    putHelper(join(dir, "capsem-helper"));
    buildSync({
      entryPoints: [new URL("main.ts", import.meta.url).pathname],
      bundle: true,
      platform: "node",
      target: "node20",
      format: "cjs",
      outfile: join(dir, "guest.cjs"),
    });
    for (const lane of ["control", "bulk", "traffic"] as const) await this.#listen(lane);
    this.#child = spawn("unshare", ["-mu", "sh", "-c", SCRIPT, "rig", ...this.#agentCommand()], {
      env: {
        PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        CGROUP: this.cgroup,
        STOP: this.#stopFile,
      },
      stdio: ["ignore", "inherit", "pipe"],
    });
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      this.log = (this.log + chunk.toString()).slice(-100_000);
    });
  }

  /** The agent's newest connection of a lane; waits for it. */
  accept(lane: "control" | "bulk" | "traffic"): Promise<Socket> {
    return this.#arrivals[lane].next();
  }

  get sysrqFile(): string {
    return join(this.dir, "sysrq");
  }

  /** Processes of the agent itself, to kill it. */
  agentPid(): number {
    const [pid] = this.#pidsOf("guest.cjs");
    if (pid === undefined) throw new Error("the agent does not run");
    return pid;
  }

  /** The pid of the relay of tool calls that runs now. */
  relayPid(): number | undefined {
    return this.#pidsOf("\0traffic\0")[0];
  }

  /** Helpers of jobs and files: those that stand ready, work, or are held. */
  zygotePids(): number[] {
    return this.#pidsOf("\0job\0");
  }

  /** Of the agent and its neighbours, whose command line has this part. */
  #pidsOf(part: string): number[] {
    const procs = readFileSync(`/proc/${this.#child?.pid}/root${this.cgroup}/agent/cgroup.procs`, "utf8");
    return procs
      .trim()
      .split("\n")
      .map(Number)
      .filter((pid) => commandLine(pid).includes(part));
  }

  /** A path of the rig's mount namespace, as this process sees it. */
  inside(path: string): string {
    return `/proc/${this.#child?.pid}/root${path}`;
  }

  residentBytes(): number {
    const status = readFileSync(`/proc/${this.agentPid()}/status`, "utf8");
    return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1] ?? 0) * 1024;
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child !== undefined && child.exitCode === null) {
      const ended = once(child, "exit");
      writeFileSync(this.#stopFile, "");
      process.kill(this.agentPid(), "SIGKILL");
      await ended;
    }
    for (const server of this.#servers) server.close();
    execFileSync("unshare", ["-m", "sh", "-c", SWEEP, "sweep", basename(this.cgroup)], { stdio: "ignore" });
    rmSync(this.dir, { recursive: true, force: true });
  }

  get #stopFile(): string {
    return join(this.dir, "stop");
  }

  #agentCommand(): string[] {
    const { dir, cgroup } = this;
    const places = {
      control: join(dir, "control"),
      bulk: join(dir, "bulk"),
      traffic: join(dir, "traffic"),
      helper: join(dir, "capsem-helper"),
      "workload-root": "/mnt/root",
      disk: "/dev/none",
      cgroups: cgroup,
      "machine-id": join(dir, "machine-id"),
      sysrq: this.sysrqFile,
    };
    const options = Object.entries(places).flatMap(([name, value]) => [`--${name}`, value]);
    return [process.execPath, join(dir, "guest.cjs"), ...options];
  }

  async #listen(lane: "control" | "bulk" | "traffic"): Promise<void> {
    const path = join(this.dir, lane);
    if (existsSync(path)) rmSync(path);
    const server = createServer((socket) => {
      socket.on("error", () => socket.destroy());
      this.#arrivals[lane].put(socket);
    });
    this.#servers.push(server);
    server.listen(path);
    await once(server, "listening");
  }
}

class Arrivals {
  readonly #waiting: Socket[] = [];
  #wake: (() => void) | undefined;

  put(socket: Socket): void {
    this.#waiting.push(socket);
    this.#wake?.();
  }

  async next(): Promise<Socket> {
    for (;;) {
      const socket = this.#waiting.shift();
      if (socket !== undefined) return socket;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** Nothing of a process that ended meanwhile. */
function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}
