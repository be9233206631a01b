import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decodeJobEntries, type JobRequest } from "./job-request.ts";
import { type JobResult, Rig, skipReason } from "./rig.ts";

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: file tests of capsem-helper: ${reason}`);

describe.skipIf(reason !== undefined)("file operations", () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.start();
  }, 60_000);
  afterAll(() => rig.stop());

  function run(op: JobRequest["op"], path: string, more: Partial<JobRequest> = {}): Promise<JobResult> {
    return rig.job({ op, path, ...more }).result();
  }

  async function write(path: string, bytes: string, more: Partial<JobRequest> = {}, commit = "commit\n") {
    const job = rig.job({ op: "write", path, ...more });
    job.stdin.end(bytes);
    job.control.end(commit);
    return job.result();
  }

  async function shell(script: string): Promise<string> {
    return (await rig.sh(script)).stdout;
  }

  function names(result: JobResult): string[] {
    const entries = decodeJobEntries(result.data.subarray(8)) ?? [];
    return entries.map((entry) => Buffer.from(entry.name).toString("utf8"));
  }

  async function check(result: Promise<JobResult>, ...lines: string[]): Promise<JobResult> {
    const done = await result;
    const short = done.lines.map((line) => line.replace(/^(error \S+ \S+) .*/, "$1"));
    expect(short).toEqual(lines);
    expect(done.code).toBe(lines.at(-1)?.startsWith("error") ? 1 : 0);
    return done;
  }

  test("stat describes files, directories, links and what these lead to", async () => {
    await shell(
      "rm -rf s; mkdir s; cd s; printf 12345 > f; chmod 4640 f; touch -d @1700000000.5 f; ln -s f good; ln -s none bad",
    );
    const entry = async (path: string, more: Partial<JobRequest> = {}) =>
      decodeJobEntries((await run("stat", path, more)).data)?.[0];
    expect(await entry("s/f")).toMatchObject({
      type: "f",
      mode: 0o4640,
      uid: 1000,
      gid: 1000,
      size: 5n,
      mtimeSeconds: 1700000000n,
      mtimeNanos: 500_000_000,
      targetType: "",
    });
    expect(await entry("s")).toMatchObject({ type: "d", mode: 0o755 });
    const good = await entry("s/good");
    expect([good?.type, good?.targetType, Buffer.from(good?.linkTarget ?? []).toString()]).toEqual([
      "l",
      "f",
      "f",
    ]);
    expect(await entry("s/bad")).toMatchObject({ type: "l", targetType: "" });
    expect(await entry("s/good", { flags: ["follow"] })).toMatchObject({ type: "f", size: 5n });
    expect(await entry("/dev/null")).toMatchObject({ type: "c" });
    await check(run("stat", "s/none"), "error stat ENOENT");
    await check(run("stat", "s/bad", { flags: ["follow"] }), "error stat ENOENT");
    await check(run("stat", "s/f/x"), "error stat ENOTDIR");
    await check(run("stat", "/proc/1/root/etc"), "error stat EACCES");
  });

  test("list gives every entry once, page by page", async () => {
    await shell("rm -rf l; mkdir l; cd l; for i in $(seq 700); do : > f$i; done; mkdir d; ln -s d k");
    const seen: string[] = [];
    let cookie = 0n;
    let pages = 0;
    do {
      const page = await run("list", "l", { offset: cookie, length: 300 });
      seen.push(...names(page));
      cookie = page.data.readBigUInt64BE(0);
      pages += 1;
    } while (cookie !== 0n);
    expect(seen.length).toBe(702);
    expect(new Set(seen).size).toBe(702);
    expect(pages).toBeGreaterThanOrEqual(3);
    expect(names(await run("list", "l")).length).toBe(256);
  });

  test("list keeps names that are not UTF-8 and pages of long links whole", async () => {
    await shell(
      `rm -rf n; mkdir n; cd n; : > "$(printf '\\377\\nx')"; t=$(printf %04000d 1); for i in $(seq 400); do ln -s $t k$i; done`,
    );
    const page = await run("list", "n", { length: 4096 });
    const entries = decodeJobEntries(page.data.subarray(8)) ?? [];
    expect(entries.length).toBeGreaterThan(200);
    expect(page.data.readBigUInt64BE(0)).not.toBe(0n);
    const rest = await run("list", "n", { length: 4096, offset: page.data.readBigUInt64BE(0) });
    const all = [...entries, ...(decodeJobEntries(rest.data.subarray(8)) ?? [])];
    expect(all.length).toBe(401);
    expect(all.some((entry) => Buffer.from(entry.name).equals(Buffer.from([0xff, 10, 0x78])))).toBe(true);
  });

  test("list refuses what is no directory or not readable", async () => {
    await check(run("list", "/etc/passwd"), "error open ENOTDIR");
    await check(run("list", "nothing"), "error open ENOENT");
    await rig.sh("mkdir -p -m 700 /workspace/closed", { uid: 0, gid: 0 });
    await check(run("list", "closed"), "error open EACCES");
  });

  test("read gives the size first and then the window asked for", async () => {
    await shell("printf 0123456789 > r");
    expect((await check(run("read", "r"), "size 10", "ok 10")).stdout).toBe("0123456789");
    expect((await check(run("read", "r", { offset: 3, length: 4 }), "size 10", "ok 4")).stdout).toBe("3456");
    expect((await check(run("read", "r", { offset: 8, length: 99 }), "size 10", "ok 2")).stdout).toBe("89");
    await check(run("read", "r", { offset: 2n ** 63n - 1n }), "size 10", "ok 0");
    await check(run("read", "r", { length: 0 }), "size 10", "ok 0");
    await shell("head -c 5000000 /dev/zero > big");
    expect((await run("read", "big")).stdout.length).toBe(5_000_000);
    const version = await run("read", "/proc/version");
    expect(version.lines[0]).toBe("size 0");
    expect(version.stdout).toContain("Linux");
  });

  test("read never waits for a fifo and opens no device", async () => {
    await shell("rm -f fifo; mkfifo fifo");
    await check(run("read", "fifo"), "error open EINVAL");
    await check(run("read", "/dev/zero"), "error open EINVAL");
    await check(run("read", "."), "error open EISDIR");
    await check(run("read", "/etc/secret"), "error open EACCES");
    expect((await run("read", "/etc/secret", { uid: 0, gid: 0 })).stdout).toBe("secret\n");
  });

  test("a large file is handed over, a small one and one of /proc or /sys is not", async () => {
    const flags = ["handOver"] as const;
    await shell("head -c 65536 /dev/zero > large; head -c 65535 /dev/zero > small");
    const job = rig.job({ op: "read", path: "large", flags, offset: 3, length: 4 });
    job.control.end();
    const { lines, stdout, code } = await job.result();
    expect([lines.map((line) => line.replace(/\d+$/, "FD")), stdout.length, code]).toEqual([
      ["file 65536 FD"],
      0,
      0,
    ]);
    await check(run("read", "small", { flags }), "size 65535", "ok 65535");
    expect((await run("read", "/proc/version", { flags })).lines[0]).toBe("size 0");
    // Large and readable by all where the kernel has it.
    expect((await run("read", "/sys/kernel/btf/vmlinux", { flags })).lines[0]).toMatch(
      /^size |^error open ENOENT/,
    );
    await check(run("read", "/etc/secret", { flags }), "error open EACCES");
    await check(run("read", "fifo", { flags }), "error open EINVAL");
    const wrongOp = await run("stat", "large", { flags });
    expect([wrongOp.lines[0]?.slice(0, 20), wrongOp.code]).toEqual(["error request EINVAL", 2]);
  });

  test("read that nobody takes ends with an error", async () => {
    const job = rig.job({ op: "read", path: "big" });
    job.process.stdout?.destroy();
    expect((await job.result()).lines.at(-1)).toContain("error output EPIPE");
  });

  test("write replaces a file whole and keeps its mode", async () => {
    await shell("rm -f w; printf old > w; chmod 600 w");
    await check(write("w", "new"), "ready", "ok 3");
    expect(await shell("cat w; stat -c ' %a %u' w; ls -A | grep -c ^.capsem-")).toBe("new 600 1000\n0\n");
    await check(write("w", "", { mode: 0o755, flags: ["sync"] }), "ready", "ok 0");
    expect(await shell("stat -c '%a %s' w")).toBe("755 0\n");
    await check(write("fresh", "x".repeat(300_000)), "ready", "ok 300000");
    expect(await shell("stat -c '%a %s' fresh; rm fresh")).toBe("644 300000\n");
  });

  test("write without a commit leaves the old file and nothing else", async () => {
    await shell("printf old > w");
    await check(write("w", "new", {}, ""), "ready", "error input ECANCELED");
    await check(write("w", "new", {}, "comm1t\n"), "ready", "error input ECANCELED");
    const job = rig.job({ op: "write", path: "w" });
    await job.line();
    job.stdin.write("half");
    job.stdin.destroy();
    job.control.destroy();
    await job.result();
    expect(await shell("cat w; ls -A | grep -c ^.capsem-")).toBe("old0\n");
  });

  test("write follows a link to the real file and stays in the workload root", async () => {
    await shell(
      "rm -rf w2; mkdir -p w2/a; printf 1 > w2/a/real; ln -s a/real w2/k; ln -s ../../../../../../etc/secret w2/out; ln -s none w2/dangling",
    );
    await check(write("w2/k", "2"), "ready", "ok 1");
    expect(await shell("cat w2/a/real; readlink w2/k")).toBe("2a/real\n");
    await check(write("w2/out", "x"), "error open EACCES");
    await check(write("w2/dangling", "x"), "error open ENOENT");
  });

  test("write refuses directories, fifos, foreign and existing files", async () => {
    await rig.sh("echo r > /workspace/roots; chmod 644 /workspace/roots", { uid: 0, gid: 0 });
    await check(write("roots", "x"), "error open EACCES");
    await check(write("/etc/new", "x"), "error open EACCES");
    await check(write(".", "x"), "error open EISDIR");
    await check(write("w2/", "x"), "error open EISDIR");
    await check(write("fifo", "x"), "error open EINVAL");
    await check(write("w", "x", { flags: ["exclusive"] }), "error open EEXIST");
    await check(write("no/such/dir", "x"), "error open ENOENT");
    await check(write("w", "12345", { length: 4 }), "ready", "error input EFBIG");
    await check(write("/usr/bin/true", "x", { uid: 0, gid: 0 }), "error open EROFS");
  });

  test("write as root keeps the owner of the file it replaces", async () => {
    await shell("printf mine > own");
    await check(write("own", "changed", { uid: 0, gid: 0 }), "ready", "ok 7");
    expect(await shell("stat -c '%u %g' own")).toBe("1000 1000\n");
  });

  test("write makes missing directories when asked", async () => {
    await shell("rm -rf p");
    await check(write("p/q/r/f", "1", { flags: ["parents"] }), "ready", "ok 1");
    expect(await shell("stat -c %a p/q/r")).toBe("755\n");
  });

  test("write in place changes a window", async () => {
    await shell("printf 0123456789 > i");
    await check(write("i", "ab", { offset: 4, flags: ["inPlace"] }, ""), "ready", "ok 2");
    expect(await shell("cat i")).toBe("0123ab6789");
    await check(write("i", "z", { flags: ["inPlace", "truncate"] }, ""), "ready", "ok 1");
    expect(await shell("cat i")).toBe("z");
    await check(write("i2", "z", { flags: ["inPlace"] }, ""), "error open ENOENT");
    await check(write("i2", "z", { flags: ["inPlace", "create", "sync"], mode: 0o600 }, ""), "ready", "ok 1");
    await check(write("i2", "z", { flags: ["inPlace", "create", "exclusive"] }, ""), "error open EEXIST");
    await check(write("fifo", "z", { flags: ["inPlace"] }, ""), "error open ENXIO");
    expect(await shell("stat -c '%a %s' i2; rm i2")).toBe("600 1\n");
  });

  test("mkdir makes one or all", async () => {
    await shell("rm -rf m");
    await check(run("mkdir", "m/n"), "error mkdir ENOENT");
    await check(run("mkdir", "m", { mode: 0o700 }), "ok");
    await check(run("mkdir", "m"), "error mkdir EEXIST");
    await check(run("mkdir", "m//n/o/", { flags: ["parents"] }), "ok");
    await check(run("mkdir", "m/n/o", { flags: ["parents"] }), "ok");
    await shell("touch m/file");
    await check(run("mkdir", "m/file", { flags: ["parents"] }), "error mkdir EEXIST");
    await check(run("mkdir", "m/file/x", { flags: ["parents"] }), "error mkdir ENOTDIR");
    await check(run("mkdir", "/etc/x"), "error mkdir EACCES");
    await check(run("mkdir", "/tmp/a/b", { flags: ["parents"] }), "ok");
    expect(await shell("stat -c %a m m/n/o")).toBe("700\n755\n");
  });

  test("rename replaces unless told not to", async () => {
    await shell("rm -rf a b; echo a > a; echo b > b");
    await check(run("rename", "a", { path2: "b", flags: ["exclusive"] }), "error rename EEXIST");
    await check(run("rename", "a", { path2: "b" }), "ok");
    await check(run("rename", "a", { path2: "b" }), "error rename ENOENT");
    await check(run("rename", "b", { path2: "/tmp/b" }), "error rename EXDEV");
    await check(
      run("rename", "b", { path2: "/etc/b" }),
      /* another mount or no right */ "error rename EACCES",
    );
  });

  test("remove takes files, links and empty directories, and trees when asked", async () => {
    await shell(
      "rm -rf x keep; mkdir -p x/y/z keep; echo 1 > x/y/f; echo 1 > keep/f; ln -s ../../keep x/y/link; ln -s keep k",
    );
    await check(run("remove", "x"), "error remove ENOTEMPTY");
    await check(run("remove", "x", { flags: ["recursive"] }), "ok");
    await check(run("remove", "k", { flags: ["recursive"] }), "ok");
    expect(await shell("ls keep; ls -d x k 2>/dev/null")).toBe("f\n");
    await check(run("remove", "keep/f"), "ok");
    await check(run("remove", "keep/"), "ok");
    await check(run("remove", "keep"), "error remove ENOENT");
    for (const path of ["/", ".", "..", "m/..", "/workspace/."]) {
      await check(run("remove", path, { flags: ["recursive"] }), "error remove EINVAL");
    }
    await check(run("remove", "/etc/secret"), "error remove EACCES");
  });

  test("remove empties a very deep and a wide tree", async () => {
    const build = [
      "import os",
      "for i in range(300): os.makedirs(f'wide/{i}/sub'); open(f'wide/{i}/a', 'w'); open(f'wide/{i}/sub/b', 'w')",
      "os.mkdir('deep'); os.chdir('deep')",
      "for i in range(3000): os.mkdir('d'); os.chdir('d')",
    ].join("\n");
    expect((await rig.exec(["python3", "-c", build])).lines[1]).toBe("exit 0");
    await check(run("remove", "deep", { flags: ["recursive"] }), "ok");
    await check(run("remove", "wide", { flags: ["recursive"] }), "ok");
  });

  test("remove never leaves its mount and stops where the user has no right", async () => {
    const result = await run("remove", "/dev", { uid: 0, gid: 0, flags: ["recursive"] });
    expect(result.lines[0]).toMatch(/^error remove (EBUSY|EXDEV)/);
    await shell("rm -rf mixed; mkdir -p mixed/a");
    await rig.sh("mkdir /workspace/mixed/a/root; touch /workspace/mixed/a/root/f", { uid: 0, gid: 0 });
    await check(run("remove", "mixed", { flags: ["recursive"] }), "error remove EACCES");
    expect(await shell("ls mixed/a/root")).toBe("f\n");
  });

  test("a path that leaves by .. ends at the workload root", async () => {
    const above = await run("list", "../../../../../..");
    expect(names(above)).toContain("workspace");
    expect((await run("read", "../../../../../etc/hostname")).stdout).toBe("bound\n");
  });

  test("an operation in an unknown directory or of a gone workload is refused", async () => {
    await check(run("stat", "x", { cwd: "/nowhere" }), "error cwd ENOENT");
    await check(run("stat", "x", { initPid: 4194303 }), "error namespace ESRCH");
  });
});
