import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { findAccount, parseAccount } from "./accounts.ts";

const PASSWD = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n";
const GROUP = "root:x:0:\nsudo:x:27:user,other\nuser:x:1000:\nvideo:x:44:other,user\nnear:x:50:user2\n";

let root = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "capsem-accounts-"));
  mkdirSync(join(root, "etc"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

test("a user has its ids, groups, home and shell", () => {
  expect(parseAccount(PASSWD, GROUP, "user")).toEqual({
    name: "user",
    uid: 1000,
    gid: 1000,
    groups: [27, 44, 1000],
    home: "/home/user",
    shell: "/bin/bash",
  });
});

test.each([
  ["too few fields", "user:x:1000:1000::/home/user\n"],
  ["too many fields", "user:x:1000:1000::/home/user:/bin/sh:x\n"],
  ["a negative id", "user:x:-1:1000::/home/user:/bin/sh\n"],
  ["an id above 32 bits", "user:x:4294967296:1000::/home/user:/bin/sh\n"],
  ["the id that means none", "user:x:4294967295:1000::/home/user:/bin/sh\n"],
  ["an octal id", "user:x:01000:1000::/home/user:/bin/sh\n"],
  ["an id with a sign", "user:x:+1000:1000::/home/user:/bin/sh\n"],
  ["a hexadecimal id", "user:x:0x10:1000::/home/user:/bin/sh\n"],
  ["an empty id", "user:x::1000::/home/user:/bin/sh\n"],
  ["a relative home", "user:x:1000:1000::home:/bin/sh\n"],
  ["a NUL in the home", "user:x:1000:1000::/ho\0me:/bin/sh\n"],
  ["a relative shell", "user:x:1000:1000::/home/user:sh\n"],
  ["another user whose name ends so", "xuser:x:1000:1000::/home/user:/bin/sh\n"],
  ["nothing", ""],
])("a line with %s is no user", (_, passwd) => {
  expect(() => parseAccount(passwd, GROUP, "user")).toThrow(/no such user/);
});

test("a wrong line does not hide a right one below it", () => {
  expect(parseAccount(`user:x:no:1::/:/bin/sh\n${PASSWD}`, GROUP, "user").uid).toBe(1000);
});

test("an empty shell is /bin/sh", () => {
  expect(parseAccount("user:x:1:2::/:\n", "", "user").shell).toBe("/bin/sh");
});

test("root is uid 0 whatever the file says", () => {
  expect(parseAccount("", "", "root").uid).toBe(0);
  expect(parseAccount("root:x:1000:1000::/:/bin/sh\n", "", "root").uid).toBe(0);
});

test("groups are bounded", () => {
  const many = Array.from({ length: 5_000 }, (_, i) => `g${i}:x:${i + 1}:user`).join("\n");
  expect(parseAccount(PASSWD, many, "user").groups.length).toBeLessThanOrEqual(64);
});

test("the files are read below the workload root", () => {
  writeFileSync(join(root, "etc/passwd"), PASSWD);
  writeFileSync(join(root, "etc/group"), GROUP);
  expect(findAccount(root, "user").groups).toEqual([27, 44, 1000]);
});

test("no link leads out of the workload root", () => {
  symlinkSync("/etc/passwd", join(root, "etc/passwd"));
  expect(() => findAccount(root, "daemon")).toThrow(/no such user/);
  rmSync(join(root, "etc"), { recursive: true });
  symlinkSync("/etc", join(root, "etc"));
  expect(() => findAccount(root, "daemon")).toThrow(/no such user/);
});

test("a device, a folder and a file above the bound are not read", () => {
  mkdirSync(join(root, "etc/passwd"));
  expect(findAccount(root, "root").uid).toBe(0);
  rmSync(join(root, "etc/passwd"), { recursive: true });
  writeFileSync(join(root, "etc/passwd"), `${PASSWD}${"#".repeat(1_100_000)}`);
  expect(() => findAccount(root, "user")).toThrow(/no such user/);
});
