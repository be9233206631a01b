import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ACTS } from "./confinement.ts";
import { native } from "./native.ts";
import { buildFixture, distDir } from "./native-fixture.ts";

await buildFixture();

/** Runs in a process of its own: a filter stays. Prints what the program returns. */
function inChild(program: string): { status: number | null; signal: string | null; said: unknown } {
  const text = `const addon = require(process.argv[1]);
    const filter = (...rows) => { const b = Buffer.alloc(rows.length * 8); rows.forEach(([c, t, f, k], i) => {
      b.writeUInt16LE(c, i * 8); b[i * 8 + 2] = t; b[i * 8 + 3] = f; b.writeUInt32LE(k, i * 8 + 4); }); return b; };
    (async () => { ${program} })().then((said) => process.stdout.write(JSON.stringify(said ?? null)));`;
  const { status, signal, stdout } = spawnSync(process.execPath, ["-e", text, join(distDir, "native.node")], {
    encoding: "utf8",
    timeout: 20_000,
  });
  return { status, signal, said: stdout === "" ? undefined : JSON.parse(stdout) };
}

/** Number of the call, `then` for getppid (110 on x64, 173 elsewhere), everything else allowed. */
const FOR_GETPPID = `filter([0x20, 0, 0, 0], [0x15, 0, 1, process.arch === "x64" ? 110 : 173], [6, 0, 0, THEN],
  [6, 0, 0, 0x7fff0000])`;

test("without a filter each act meets the kernel's own refusal, and the sockets are made", () => {
  const ends = inChild(`return [...Array(${ACTS.length}).keys()].map((act) => addon.attempt(act));`).said;
  const sockets = ACTS.filter((act) => act.startsWith("socket_"));
  const named = Object.fromEntries(ACTS.map((act, index) => [act, (ends as string[])[index]]));
  expect(named).toMatchObject({
    execve: "EFAULT",
    fork: "EINVAL",
    ptrace: "ESRCH",
    process_vm_readv: "EINVAL",
    unshare: "EINVAL",
    setns: "EBADF",
    pidfd_getfd: "EBADF",
    connect: "EBADF",
    bind: "EBADF",
  });
  expect(sockets.map((act) => named[act])).toEqual(["", "", ""]);
});

test("a filter binds every thread at once: the main one and those of the pool", () => {
  // EPERM for every openat, that of a thread which existed before included.
  const { said } = inChild(`const { openSync, promises } = require("node:fs");
    const code = (thrown) => thrown.code;
    await promises.open("/etc/passwd").then((file) => file.close());
    addon.setNoNewPrivileges();
    addon.installFilter(filter([0x20, 0, 0, 0], [0x15, 0, 1, process.arch === "x64" ? 257 : 56],
      [6, 0, 0, 0x00050001], [6, 0, 0, 0x7fff0000]));
    let sync = ""; try { openSync("/etc/passwd"); } catch (thrown) { sync = code(thrown); }
    return [sync, await promises.open("/etc/passwd").then(() => "", code)];`);
  expect(said).toEqual(["EPERM", "EPERM"]);
});

test("a filter's last word may be the end of the process", () => {
  const { signal } = inChild(`addon.setNoNewPrivileges();
    addon.installFilter(${FOR_GETPPID.replace("THEN", "0x80000000")});
    return process.ppid;`);
  expect(signal).toBe("SIGSYS");
});

test("a program that the kernel does not take is a failure with its errno", () => {
  // A jump beyond the end.
  const { said } = inChild(`addon.setNoNewPrivileges();
    try { addon.installFilter(filter([0x15, 9, 9, 0], [6, 0, 0, 0x7fff0000])); } catch (thrown) { return thrown.code; }`);
  expect(said).toBe("EINVAL");
});

test("what is no program never reaches the kernel", () => {
  for (const bytes of [new Uint8Array(0), new Uint8Array(7), new Uint8Array(4097 * 8)]) {
    expect(() => native().installFilter(bytes)).toThrow("bad filter length");
  }
  expect(() => native().attempt("reboot" as never)).toThrow("unknown act");
  expect(native().landlockAbi()).toBeGreaterThanOrEqual(0);
});
