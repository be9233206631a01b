import { mkdir, mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { imagePowers } from "./powers-node.ts";
import { isRestricted, makeScratch, removeStaleScratch } from "./scratch.ts";

const MOUNTS = `
/dev/a / ext4 rw,relatime 0 0
tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0
tmpfs /tmp tmpfs rw,nosuid,noexec 0 0
/dev/b /tmp/ok ext4 rw 0 0
/dev/c /over ext4 rw,noexec 0 0
/dev/d /over ext4 rw 0 0
`;

const places: readonly (readonly [string, boolean])[] = [
  ["/var/tmp", false],
  ["/dev/shm", true],
  ["/tmp", true],
  ["/tmp/x", true],
  ["/tmp/ok/deep", false],
  ["/tmpfoo", false],
  ["/over", false],
];

for (const [path, restricted] of places) {
  test(`${path} ${restricted ? "will not do" : "will do"} for a build`, () => {
    expect(isRestricted(MOUNTS, path)).toBe(restricted);
  });
}

test("stale scratch folders of the same lock go, those of another lock stay", async () => {
  const root = await mkdtemp(join(tmpdir(), "capsem-scratch-"));
  try {
    const stale = await makeScratch(root, "lock1");
    const other = await makeScratch(root, "lock2");
    await mkdir(join(stale.outDir, "deep"));
    // The build's user namespace writes in one folder and can only pass through the other.
    expect((await stat(stale.dir)).mode & 0o777).toBe(0o711);
    expect((await stat(stale.outDir)).mode & 0o777).toBe(0o777);
    await removeStaleScratch({ ...imagePowers(), env: {} }, "lock1", [root, join(root, "absent")]);
    expect(await readdir(root)).toEqual([other.dir.slice(root.length + 1)]);
  } finally {
    await rm(root, { recursive: true, force: true });
  }
});
