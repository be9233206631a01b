/**
 * A scratch workload for the tests: a mount namespace of its own in which /mnt/root is a small
 * root made of the host's /usr, and a running workload-init in it. Only root can build it.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex, Readable, Writable } from "node:stream";
import { encodeJobRequest, type JobRequest } from "./job-request.ts";
import { putHelper } from "./testing/compiled.ts";

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

const rootScript = `
set -e
mount --make-rprivate /
mount -t tmpfs -o nodev tmpfs /mnt
mkdir /mnt/root /mnt/disk
mount -t tmpfs -o nodev,mode=755 tmpfs /mnt/root
cd /mnt/root
mkdir usr etc proc sys run tmp dev workspace
mount --bind /usr usr
mount -o remount,bind,ro usr
for d in bin sbin lib lib64; do ln -s usr/$d $d; done
for f in passwd group ld.so.cache nsswitch.conf; do cp /etc/$f etc/; done
grep -q '^user:' etc/passwd || echo 'user:x:1000:1000::/workspace:/bin/sh' >> etc/passwd
echo plain > etc/hostname
echo secret > etc/secret; chmod 600 etc/secret
mount -t tmpfs -o nodev,mode=1777 tmpfs tmp; chown 1000:1000 workspace
mount -t tmpfs -o mode=755 tmpfs dev
mount -t tmpfs -o mode=755 tmpfs run
echo bound > run/hostname
mkdir dev/pts dev/shm
for n in "null 1 3" "zero 1 5" "full 1 7" "urandom 1 9" "tty 5 0"; do set -- $n; mknod -m 666 dev/$1 c $2 $3; done
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd; ln -s /proc/self/fd/1 dev/stdout
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
cp /usr/bin/id workspace/rootid; chmod 4755 workspace/rootid
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/$CGROUP/init /sys/fs/cgroup/$CGROUP/job
echo rig
cat > /dev/null
`;

export interface JobResult {
  readonly lines: readonly string[];
  readonly data: Buffer;
  readonly stdout: string;
  readonly stderr: string;
  readonly code: number | null;
}

/** One running zygote; lines of fd 3 are read as they come. */
export interface Job {
  readonly process: ChildProcess;
  readonly stdin: Writable;
  readonly control: Duplex;
  /** The next line of fd 3; undefined at its end. */
  line(): Promise<string | undefined>;
  /** What stdout has shown so far, once it holds `part`. */
  seen(part: string): Promise<string>;
  result(): Promise<JobResult>;
}

export class Rig {
  readonly initPid: number;
  readonly cgroup: string;
  readonly #binary: string;
  readonly #keeper: ChildProcess;
  readonly #init: ChildProcess;
  readonly #dir: string;

  private constructor(
    dir: string,
    binary: string,
    keeper: ChildProcess,
    init: ChildProcess,
    initPid: number,
  ) {
    this.#dir = dir;
    this.#binary = binary;
    this.#keeper = keeper;
    this.#init = init;
    this.initPid = initPid;
    this.cgroup = cgroupName();
  }

  static async start(): Promise<Rig> {
    const dir = mkdtempSync(join(tmpdir(), "capsem-helper-"));
    const binary = compile(dir);
    const keeper = spawn("unshare", ["-m", "sh", "-c", rootScript], {
      env: { PATH: process.env.PATH ?? "/usr/bin:/bin", CGROUP: cgroupName() },
      stdio: ["pipe", "pipe", "inherit"],
    });
    await firstLine(keeper.stdout);
    const init = inside(keeper, [binary, "workload-init", "/mnt/root", `${cgroupDir()}/init`, "capsule"], 3);
    const ready = /^ready (\d+)$/.exec(await firstLine(init.stdout));
    if (ready === null) throw new Error("workload-init did not start");
    return new Rig(dir, binary, keeper, init, Number(ready[1]));
  }

  /** Runs a program in the rig's mount namespace, outside the workload. */
  spawn(argv: readonly string[], descriptors = 4): ChildProcess {
    return inside(this.#keeper, argv, descriptors);
  }

  /** Starts a zygote and, where bytes are given, sends them as its request. */
  zygote(request?: Uint8Array): Job {
    const job = followJob(this.spawn([this.#binary, "job"]));
    if (request !== undefined) job.control.write(request);
    return job;
  }

  job(request: Omit<JobRequest, "initPid" | "uid" | "gid"> & Partial<JobRequest>): Job {
    return this.zygote(
      encodeJobRequest({
        initPid: this.initPid,
        uid: 1000,
        gid: 1000,
        cgroup: `${cgroupDir()}/job`,
        cwd: "/workspace",
        ...request,
      }),
    );
  }

  /** Runs a program with an empty stdin to its end. */
  async exec(argv: readonly string[], request: Partial<JobRequest> = {}): Promise<JobResult> {
    const job = this.job({ op: "exec", argv, env: ["PATH=/usr/bin:/bin"], ...request });
    job.stdin.end();
    return job.result();
  }

  sh(script: string, request: Partial<JobRequest> = {}): Promise<JobResult> {
    return this.exec(["sh", "-c", script], request);
  }

  get binary(): string {
    return this.#binary;
  }

  get keeperPid(): number {
    return this.#keeper.pid ?? 0;
  }

  get initProcess(): ChildProcess {
    return this.#init;
  }

  async stop(): Promise<void> {
    this.#init.kill("SIGKILL");
    if (this.#init.exitCode === null && this.#init.signalCode === null) await once(this.#init, "exit");
    const sweep = this.spawn(["rmdir", `${cgroupDir()}/init`, `${cgroupDir()}/job`, cgroupDir()], 3);
    await once(sweep, "exit");
    this.#keeper.stdin?.end();
    if (this.#keeper.exitCode === null) await once(this.#keeper, "exit");
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

export function compile(dir: string): string {
  const binary = join(dir, "capsem-helper");
  putHelper(binary);
  return binary;
}

function cgroupName(): string {
  return `capsem-test-${process.pid}`;
}

function cgroupDir(): string {
  return `/sys/fs/cgroup/${cgroupName()}`;
}

function inside(keeper: ChildProcess, argv: readonly string[], descriptors: number): ChildProcess {
  const stdio = Array.from({ length: descriptors }, () => "pipe" as const);
  return spawn("nsenter", [`--mount=/proc/${keeper.pid}/ns/mnt`, ...argv], { env: {}, stdio });
}

export async function firstLine(stream: Readable | null): Promise<string> {
  if (stream === null) throw new Error("no stream");
  let text = "";
  for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
    text += String(chunk);
    const end = text.indexOf("\n");
    if (end >= 0) return text.slice(0, end);
  }
  return text;
}

interface Waiter {
  readonly done: () => boolean;
  readonly resolve: () => void;
}

function followJob(child: ChildProcess): Job {
  const [stdin, stdout, stderr, control] = child.stdio;
  const duplex = control as Duplex;
  let text = "";
  let errors = "";
  let report = Buffer.alloc(0);
  let reportEnded = false;
  let taken = 0;
  const waiters = new Set<Waiter>();
  const wake = (): void => {
    for (const waiter of waiters) {
      if (!waiter.done()) continue;
      waiters.delete(waiter);
      waiter.resolve();
    }
  };
  const until = (done: () => boolean): Promise<void> =>
    done() ? Promise.resolve() : new Promise((resolve) => waiters.add({ done, resolve }));
  const ignoreBrokenPipe = (): void => undefined; // a zygote may end while we still write
  for (const stream of [stdin, control]) stream?.on("error", ignoreBrokenPipe);
  const outEnd = [stdout, stderr].map((stream) => once(stream as Readable, "close"));
  stdout?.on("data", (chunk: Buffer) => {
    text += chunk.toString("latin1");
    wake();
  });
  stderr?.on("data", (chunk: Buffer) => {
    errors += chunk.toString("latin1");
  });
  duplex.on("data", (chunk: Buffer) => {
    report = Buffer.concat([report, chunk]);
    wake();
  });
  const ended = once(child, "exit");
  for (const event of ["end", "close"]) {
    duplex.on(event, () => {
      reportEnded = true;
      wake();
    });
  }
  return {
    process: child,
    stdin: stdin as Writable,
    control: duplex,
    line: async () => {
      await until(() => reportEnded || report.indexOf(10, taken) >= 0);
      const end = report.indexOf(10, taken);
      if (end < 0) return undefined;
      const line = report.toString("latin1", taken, end);
      taken = end + 1;
      return line;
    },
    seen: async (part) => {
      await until(() => text.includes(part));
      return text;
    },
    result: async () => {
      const [code] = (await ended) as [number | null];
      await Promise.all([...outEnd, until(() => reportEnded)]);
      const data = /^data (\d+)\n/.exec(report.toString("latin1"));
      const start = data === null ? 0 : data[0].length;
      const size = data === null ? 0 : Number(data[1]);
      return {
        lines: report
          .toString("latin1")
          .slice(start === 0 ? 0 : start + size)
          .split("\n")
          .slice(0, -1),
        data: report.subarray(start, start + size),
        stdout: text,
        stderr: errors,
        code,
      };
    },
  };
}
