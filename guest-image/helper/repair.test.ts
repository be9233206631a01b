import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compile, skipReason } from "./rig.ts";

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: repair tests of capsem-helper: ${reason}`);

const seed = "ab".repeat(32);
const machineId = "0123456789abcdef0123456789abcdef";

/** Can this kernel mount what mount-disk mounts? */
function diskReason(): string | undefined {
  try {
    const script =
      "mount -t tmpfs t /mnt && cd /mnt && mkdir l m && truncate -s 16M d && mkfs.ext4 -q d && mount -o loop d m && mkdir m/u m/w l/x && mount -t overlay -o lowerdir=l,upperdir=m/u,workdir=m/w o l";
    execFileSync("unshare", ["-m", "sh", "-c", script], { stdio: "ignore" });
    return undefined;
  } catch (cause) {
    return `no loop device, ext4 or overlay: ${String(cause)}`;
  }
}
const noDisk = reason ?? diskReason();
if (noDisk !== undefined) console.log(`skipped: disk tests of capsem-helper: ${noDisk}`);

describe.skipIf(reason !== undefined)("repair", () => {
  let dir: string;
  let binary: string;
  beforeAll(() => {
    dir = mkdtempSync(join(tmpdir(), "capsem-repair-"));
    binary = compile(dir);
  }, 60_000);
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  /** Without the right to set the host's clock, and with a hostname and mounts of its own. */
  async function talk(input: string | Buffer, setup = "true", after = "true"): Promise<string[]> {
    const script = `${setup} && setpriv --bounding-set=-sys_time ${binary} repair ${dir}/machine-id && ${after}`;
    const child = spawn("unshare", ["-mu", "sh", "-c", script], { stdio: ["pipe", "pipe", "inherit"] });
    let text = "";
    child.stdout.on("data", (chunk: Buffer) => {
      text += chunk.toString();
    });
    child.stdin.end(input);
    await once(child, "close");
    return text.split("\n").slice(0, -1);
  }

  const good = ["repair", "1700000000", "5", seed, "vm-1", machineId];
  function withField(index: number, value: string): string {
    return good.map((field, i) => (i === index ? value : field)).join(" ");
  }

  const refused: readonly string[] = [
    "",
    " ",
    "nonsense",
    "repair",
    `${good.join(" ")} `,
    `${good.join(" ")} 1`,
    `${good.join(" ")} 4194305`,
    `${good.join(" ")} 5 6`,
    withField(1, "0"),
    withField(1, "01"),
    withField(1, "-5"),
    withField(1, "253402300800"),
    withField(1, "18446744073709551617"),
    withField(2, "1000000000"),
    withField(2, "1e3"),
    withField(3, "ab".repeat(31)),
    withField(3, `${seed}a`),
    withField(3, `${seed}zz`),
    withField(3, "ab".repeat(513)),
    withField(4, ""),
    withField(4, "-a"),
    withField(4, "a-"),
    withField(4, "a.b"),
    withField(4, "a".repeat(64)),
    withField(5, machineId.toUpperCase()),
    withField(5, machineId.slice(1)),
    withField(5, `${machineId.slice(1)}/`),
    "clock 5",
    "clock 5 5 5",
    "clock x 5",
    "mount-disk",
    "mount-disk vdb",
    "mount-disk /dev/",
    "mount-disk /dev/../etc/passwd",
    "mount-disk /dev/mapper/x",
    "block-size /dev/null/x",
    "unmount-disk now",
    "sync 1",
  ];
  test("every line that breaks a bound is answered with an invalid request", async () => {
    const answers = await talk(`${refused.join("\n")}\n`);
    expect(answers).toEqual(refused.map(() => "error request EINVAL Invalid argument"));
  });

  test("a line that is too long is answered once, and the next is served", async () => {
    const answers = await talk(
      `${"x".repeat(10_000)}\nsync\n${"y".repeat(4096)}\nsync\n${"z".repeat(4095)}\nsync\n`,
    );
    const invalid = "error request EINVAL Invalid argument";
    expect(answers).toEqual([invalid, "ok", invalid, "ok", invalid, "ok"]);
  });

  test("a NUL in a line hides nothing", async () => {
    expect(await talk("sync\0x\nsync\n")).toEqual(["error request EINVAL Invalid argument", "ok"]);
  });

  test("a step that the kernel refuses is named, and nothing after it is done", async () => {
    const answers = await talk(`${good.join(" ")}\nclock 1700000000 0\n`, "hostname before", "hostname");
    const refusal = "error clock EPERM Operation not permitted";
    expect(answers).toEqual([refusal, refusal, "before"]);
  });

  test("the size of a device that is not there is an error", async () => {
    expect((await talk("block-size /dev/none\n"))[0]).toContain("error open ENOENT");
  });

  test("a disk that is not there leaves nothing mounted", async () => {
    const answers = await talk(
      "unmount-disk\nmount-disk /dev/none\nmount-disk /dev/none\n",
      "mount -t tmpfs t /mnt && mkdir /mnt/disk /mnt/root",
      "! grep -E ' /mnt/(disk|root)' /proc/self/mounts",
    );
    expect(answers[0]).toContain("error state EINVAL");
    expect(answers.slice(1).every((line) => line.startsWith("error disk E"))).toBe(true);
    expect(answers.length).toBe(3);
  });

  /** As an earlier helper left it, of other file systems: the source of a tmpfs is any text. */
  const left =
    "mount -t tmpfs t /mnt && mkdir /mnt/disk /mnt/root && mount -t tmpfs /dev/null /mnt/disk && mount -t tmpfs r /mnt/root && mkdir -p /mnt/root/run /mnt/root/dev/pts";
  const nothingLeft = "! grep -E ' /mnt/(disk|root)' /proc/self/mounts && echo clean";

  test("a disk that a lost helper has mounted comes off by the next one", async () => {
    const lines = await talk(
      "mount-disk /dev/zero\nunmount-disk\nunmount-disk\n",
      `${left} && mount -t tmpfs p /mnt/root/dev/pts`,
      nothingLeft,
    );
    expect(lines[0]).toContain("error state EBUSY");
    expect(lines[1]).toBe("ok");
    expect(lines[2]).toContain("error state EINVAL");
    expect(lines[3]).toBe("clean");
  });

  test("a disk whose mount a lost helper did not answer is the next one's to mount, once", async () => {
    const lines = await talk(
      "mount-disk /dev/null\nmount-disk /dev/null\nunmount-disk\n",
      `${left} && mount -t tmpfs p /mnt/root/dev/pts`,
      nothingLeft,
    );
    expect(lines[0]).toBe("ok");
    expect(lines[1]).toContain("error state EBUSY");
    expect(lines.slice(2)).toEqual(["ok", "clean"]);
  });

  test("a mount that was torn by its helper's end is taken away by the next one", async () => {
    const lines = await talk("unmount-disk\n", left, nothingLeft);
    expect(lines[0]).toContain("error state EINVAL");
    expect(lines[1]).toBe("clean");
  });

  test.skipIf(noDisk !== undefined)("a disk is mounted as a workload root and comes off clean", async () => {
    const setup = [
      "mount -t tmpfs t /mnt && mkdir /mnt/disk /mnt/root && truncate -s 64M /mnt/image && mkfs.ext4 -q /mnt/image",
      "D=$(losetup -f --show /mnt/image) && echo $D",
      `${binary} repair ${dir}/machine-id; losetup -d $D`,
      "grep -c ' /mnt/root' /proc/self/mounts; e2fsck -fn /mnt/image >/dev/null 2>&1; echo $?",
    ].join("\n");
    const child = spawn("unshare", ["-mu", "sh", "-c", setup], { stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const next = async (): Promise<string> => String((await lines.next()).value);
    const device = await next();
    const ask = (command: string): Promise<string> => {
      child.stdin.write(`${command}\n`);
      return next();
    };
    expect(await ask(`mount-disk ${device}`)).toBe("ok");
    expect(await ask(`mount-disk ${device}`)).toContain("error state EBUSY");
    expect(await ask(`block-size ${device}`)).toBe("ok 67108864");
    const look =
      "stat -fc %T /mnt/root/tmp /mnt/root/dev/pts; ls /mnt/root/dev; grep -c '^overlay /mnt/root .*nodev' /proc/self/mounts";
    const seen = execFileSync("nsenter", [`--mount=/proc/${child.pid}/ns/mnt`, "sh", "-c", look]).toString();
    expect(seen.trim().split("\n")).toEqual(
      "tmpfs devpts fd full null ptmx pts random shm stderr stdin stdout tty urandom zero 1".split(" "),
    );
    expect(await ask("unmount-disk")).toBe("ok");
    child.stdin.end();
    expect([await next(), await next()]).toEqual(["0", "0"]);
  });
});
