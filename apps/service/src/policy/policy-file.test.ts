import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readPolicyFile } from "./policy-file.ts";
import { uid, useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();

async function told(path: string): Promise<string> {
  const read = await readPolicyFile(path, "corp.toml", uid);
  return read.kind === "refused" ? read.fault.message : read.kind;
}

test("a file of ours is read, with whatever mark its editor put before it; one that is not there is missing", async () => {
  const { home, write } = temp({ "corp.toml": "\ufeffa = 1\n" });
  const path = join(home, "corp.toml");
  expect(await readPolicyFile(path, "corp.toml", uid)).toEqual({ kind: "text", text: "a = 1\n" });
  expect(await told(join(home, "none.toml"))).toBe("missing");
  expect(await told(join(home, "none", "none.toml"))).toBe("missing");
  write("file", "");
  expect(await told(join(home, "file", "corp.toml"))).toMatch(/ENOTDIR|not a directory/);
});

function huge(path: string): void {
  writeFileSync(path, "");
  truncateSync(path, 1024 ** 4);
}

function openToAll(path: string): void {
  writeFileSync(path, "");
  chmodSync(path, 0o666);
}

test.each<[what: string, make: (path: string) => void, says: string]>([
  ["a link", (path) => symlinkSync("/dev/null", path), "it is a link"],
  ["a pipe", (path) => execFileSync("mkfifo", [path]), "it is no file"],
  ["a folder", (path) => mkdirSync(path), "it is no file"],
  ["a huge file", huge, "longer than 262144 bytes"],
  ["bytes that are no text", (path) => writeFileSync(path, Buffer.from([0xff, 0xfe])), "not UTF-8"],
  ["what everybody may write", openToAll, "chmod go-w"],
])("%s is refused and holds nobody up", async (_what, make, says) => {
  const path = join(temp().home, "corp.toml");
  make(path);
  expect(await told(path)).toContain(says);
});

test("a group that is not the owner's own may not write it", async () => {
  const path = join(temp({ "corp.toml": "" }).home, "corp.toml");
  chmodSync(path, 0o660);
  if (uid !== 0)
    return expect(await told(path)).toBe(process.getgid?.() === uid ? "text" : expect.anything());
  expect(await told(path)).toBe("text");
  chownSync(path, 0, 50);
  expect(await told(path)).toContain("others may write it");
});

test.skipIf(uid !== 0)("a file of another user is refused, root's is not", async () => {
  const path = join(temp({ "corp.toml": "" }).home, "corp.toml");
  expect((await readPolicyFile(path, "corp.toml", 1000)).kind).toBe("text");
  chownSync(path, 4321, 4321);
  expect(await told(path)).toContain("belongs to user 4321");
});

test("a file in a folder where everybody may exchange it is refused", async () => {
  const { home } = temp();
  mkdirSync(join(home, "open"));
  chmodSync(join(home, "open"), 0o777);
  writeFileSync(join(home, "open", "corp.toml"), "", { mode: 0o600 });
  expect(await told(join(home, "open", "corp.toml"))).toContain("everybody may write it");
  chmodSync(join(home, "open"), 0o1777);
  expect(await told(join(home, "open", "corp.toml"))).toBe("text");
});
