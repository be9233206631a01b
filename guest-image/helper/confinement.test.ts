import { once } from "node:events";
import { readFileSync, readlinkSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { firstLine, Rig, skipReason } from "./rig.ts";

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: confinement tests of capsem-helper: ${reason}`);

/** Pinned: chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw
 * ipc_lock ipc_owner sys_chroot audit_write setfcap. */
const kept = "00000000a004e5fb";
const root = { uid: 0, gid: 0 } as const;

/** Each attack works for root outside the workload, which proves that it is a real one. */
const attacks: readonly { readonly what: string; readonly script: string; readonly refusal: RegExp }[] = [
  {
    what: "mounts a file system",
    script: "mount -t tmpfs none /run 2>&1",
    refusal: /denied|permitted|superuser/,
  },
  {
    what: "unmounts what protects /proc",
    script: "umount /proc/sys 2>&1",
    refusal: /denied|permitted|superuser/,
  },
  {
    what: "makes /proc/sys writable",
    script: "mount -o remount,bind,rw /proc/sys 2>&1",
    refusal: /denied|permitted|superuser/,
  },
  {
    what: "writes to sysrq-trigger",
    script: "(: > /proc/sysrq-trigger) 2>&1",
    refusal: /Read-only|nonexistent/,
  },
  {
    what: "changes a kernel setting",
    script: "(: > /proc/sys/kernel/core_pattern) 2>&1",
    refusal: /Read-only/,
  },
  { what: "writes to /sys", script: "(: > /sys/kernel/uevent_seqnum) 2>&1", refusal: /Read-only|denied/ },
  { what: "makes a device node", script: "mknod /run/d b 7 0 2>&1", refusal: /permitted/ },
  {
    what: "changes the hostname",
    script: "python3 -c 'import socket; socket.sethostname(\"x\")' 2>&1",
    refusal: /permitted/,
  },
  { what: "becomes a real-time process", script: "chrt -f 50 true 2>&1", refusal: /permitted/ },
  { what: "raises its priority", script: "python3 -c 'import os; os.nice(-5)' 2>&1", refusal: /permitted/i },
  { what: "leaves by another namespace", script: "nsenter -t 1 -m true 2>&1", refusal: /denied|permitted/ },
  { what: "looks through PID 1", script: "ls /proc/1/root/ 2>&1", refusal: /denied/ },
  {
    what: "moves itself to another cgroup",
    script: "(echo 0 > /sys/fs/cgroup/init/cgroup.procs) 2>&1",
    refusal: /Read-only/,
  },
];

describe.skipIf(reason !== undefined)("confinement", () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.start();
  }, 60_000);
  afterAll(() => rig.stop());

  for (const { what, script, refusal } of attacks) {
    test(`root in the workload never ${what}`, async () => {
      const result = await rig.sh(script, root);
      expect(result.stdout).toMatch(refusal);
      expect(result.lines[1]).not.toBe("exit 0");
    });
  }

  test("the same mount, node, hostname and priority work for root outside", async () => {
    const script =
      "mount -t tmpfs none /mnt/disk && mknod /mnt/disk/d b 7 0 && umount /mnt/disk && nice -n -1 true && echo worked";
    const outside = rig.spawn(["unshare", "-u", "sh", "-c", `hostname x; ${script}`], 3);
    expect(await firstLine(outside.stdout)).toBe("worked");
  });

  test("a device node that is there already does not open", async () => {
    const made = rig.spawn(["mknod", "/mnt/root/node", "c", "1", "3"], 3);
    await once(made, "exit");
    const result = await rig.sh("cat /node 2>&1; echo x > /node", root);
    expect(result.stdout).toContain("Permission denied");
    expect(result.lines[1]).not.toBe("exit 0");
  });

  for (const uid of [0, 1000]) {
    test(`uid ${uid} sees only processes of the workload`, async () => {
      const result = await rig.sh(
        "for p in /proc/[0-9]*; do cat $p/comm; done 2>/dev/null | sort -u | tr '\\n' ' '",
        { uid, gid: uid },
      );
      expect(
        result.stdout
          .split(" ")
          .filter((name) => !["cat", "sh", "sort", "tr", "capsem-init", ""].includes(name)),
      ).toEqual([]);
      expect(result.stdout).toContain("capsem-init");
    });
  }

  test("a file of the host outside the root is not there", async () => {
    const result = await rig.sh(
      `ls ${process.cwd()} /root /home /sys/fs/cgroup/.. 2>&1; cat /proc/mounts`,
      root,
    );
    expect(result.stdout).toContain(`cannot access '${process.cwd()}'`);
    expect(result.stdout).not.toMatch(/ \/mnt\/root/);
  });

  test("the capability sets are cut for root and empty for the user", async () => {
    const sets = async (uid: number): Promise<string[]> =>
      (await rig.sh("grep ^Cap /proc/self/status", { uid, gid: uid })).stdout.match(/[0-9a-f]{16}/g) ?? [];
    const none = "0".repeat(16);
    expect(await sets(0)).toEqual([none, kept, kept, kept, none]);
    expect(await sets(1000)).toEqual([none, none, none, kept, none]);
  });

  test("setuid programs work for the user, within the cut set", async () => {
    expect((await rig.sh("./rootid -u")).stdout).toBe("0\n");
  });

  test("only lo exists and it is up", async () => {
    const result = await rig.sh(
      'ls /sys/class/net; python3 -c \'import socket; s=socket.create_server(("127.0.0.1",0)); socket.create_connection(s.getsockname()); print("joined")\'',
    );
    expect(result.stdout).toBe("lo\njoined\n");
  });

  test("the hostname and the identity files are the workload's", async () => {
    expect((await rig.sh("hostname; cat /etc/hostname")).stdout).toBe("capsule\nbound\n");
  });

  test("memory of the kernel and its keys are masked", async () => {
    expect(
      (
        await rig.sh(
          "for f in kcore keys timer_list kmsg; do [ ! -e /proc/$f ] || cat /proc/$f; done 2>&1 | wc -c",
          root,
        )
      ).stdout,
    ).toBe("0\n");
  });

  test("orphans are reaped by PID 1", async () => {
    const result = await rig.sh(
      "(sh -c 'exit 0' & exec >/dev/null; true); sh -c '(true &) ; true'; sleep 0.1; ps -eo stat= | grep -c ^Z",
    );
    expect(result.stdout).toBe("0\n");
  });

  test("a signal from inside does not end PID 1", async () => {
    await rig.sh("kill -9 1; kill -15 1", root);
    expect((await rig.sh("true")).lines[1]).toBe("exit 0");
  });

  test("the workload ends with the process that started it", async () => {
    const script = `exec ${rig.binary} workload-init /mnt/root '' other`;
    const parent = rig.spawn(["sh", "-c", `(${script}) & wait`], 3);
    const pid = /^ready (\d+)$/.exec(await firstLine(parent.stdout))?.[1];
    expect((await rig.exec(["hostname"], { initPid: Number(pid) })).stdout).toBe("other\n");
    const job = rig.job({
      op: "exec",
      argv: ["sh", "-c", "echo up; sleep 1000"],
      env: ["PATH=/usr/bin"],
      initPid: Number(pid),
    });
    await job.seen("up");
    parent.kill("SIGKILL");
    expect((await job.result()).lines[1]).toMatch(/^signal 9/);
  });

  describe("a workload that is not told its name yet", () => {
    const start = async () => {
      const child = rig.spawn([rig.binary, "workload-init", "/mnt/root", ""], 3);
      const pid = Number(/^prepared (\d+)$/.exec(await firstLine(child.stdout))?.[1]);
      return { child, pid, ended: once(child, "exit") };
    };
    const namespaceOf = (pid: number, name: string) => readlinkSync(`/proc/${pid}/ns/${name}`);

    test("has namespaces of its own and no root, until it is told", async () => {
      const { child, pid } = await start();
      for (const name of ["pid", "ipc", "uts", "net", "cgroup"])
        expect(namespaceOf(pid, name)).not.toBe(namespaceOf(rig.keeperPid, name));
      expect(namespaceOf(pid, "mnt")).toBe(namespaceOf(rig.keeperPid, "mnt"));
      child.stdin?.write("start later\n");
      expect(await firstLine(child.stdout)).toBe(`ready ${pid}`);
      expect(namespaceOf(pid, "mnt")).not.toBe(namespaceOf(rig.keeperPid, "mnt"));
      expect((await rig.exec(["hostname"], { initPid: pid })).stdout).toBe("later\n");
      const attack = "mount -t tmpfs none /run 2>&1";
      expect((await rig.sh(attack, { ...root, initPid: pid })).stdout).toMatch(/denied|permitted|superuser/);
      child.kill("SIGKILL");
    });

    const orders: readonly [string, string][] = [
      ["no order", "begin later\n"],
      ["a bad hostname", "start -x\n"],
      ["a hostname that is too long", `start ${"x".repeat(64)}\n`],
      ["a NUL", "start a\0b\n"],
      ["a line without an end", "x".repeat(4_096)],
    ];
    for (const [what, order] of orders) {
      test(`refuses ${what} and ends`, async () => {
        const { child, pid, ended } = await start();
        child.stdin?.on("error", () => undefined);
        child.stdin?.write(order);
        expect(await firstLine(child.stdout)).toContain("error request EINVAL");
        expect((await ended)[0]).toBe(1);
        await expect.poll(() => isAlive(pid), { timeout: 5_000 }).toBe(false);
      });
    }

    test("ends when nobody can tell it any more", async () => {
      const { child, pid, ended } = await start();
      child.stdin?.end();
      await ended;
      await expect.poll(() => isAlive(pid), { timeout: 5_000 }).toBe(false);
    });
  });

  const refused: readonly [string, readonly string[], string][] = [
    ["a relative root", ["mnt/root", "", "x"], "error request EINVAL"],
    ["a missing root", ["/nowhere", "", "x"], "error root ENOENT"],
    ["a bad hostname", ["/mnt/root", "", "-x"], "error request EINVAL"],
    ["a cgroup elsewhere", ["/mnt/root", "/tmp/x", "x"], "error request EINVAL"],
    ["a cgroup with ..", ["/mnt/root", "/sys/fs/cgroup/../x", "x"], "error request EINVAL"],
    ["a missing cgroup", ["/mnt/root", "/sys/fs/cgroup/none", "x"], "error cgroup ENOENT"],
    ["too few arguments", ["/mnt/root"], "error request EINVAL"],
  ];
  for (const [what, argv, expected] of refused) {
    test(`workload-init refuses ${what}`, async () => {
      const child = rig.spawn([rig.binary, "workload-init", ...argv], 3);
      const ended = once(child, "exit");
      expect(await firstLine(child.stdout)).toContain(expected);
      expect((await ended)[0]).toBe(1);
    });
  }
});

/** One that has ended may wait for whoever reaps it. */
function isAlive(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}
