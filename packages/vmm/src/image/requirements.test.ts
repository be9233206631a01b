import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { BUILD_PROGRAMS, checkUserIds, missingPackages } from "./requirements.ts";

test("every program that is absent is named by its Debian package, once", async () => {
  const dir = await mkdtemp(join(tmpdir(), "capsem-programs-"));
  try {
    const all = await missingPackages(true, dir);
    expect(all).toEqual([...new Set(Object.values(BUILD_PROGRAMS))].sort());
    expect(await missingPackages(false, dir)).toContain("uidmap");

    await writeFile(join(dir, "qemu-img"), "");
    expect(await missingPackages(true, dir)).toContain("qemu-utils");
    await chmod(join(dir, "qemu-img"), 0o755);
    expect(await missingPackages(true, dir)).not.toContain("qemu-utils");
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

const ranges: readonly (readonly [string, boolean])[] = [
  ["ann:100000:65536\n", true],
  ["bob:100000:65536\n1001:165536:65536\n", true],
  ["bob:100000:65536\n", false],
  ["ann:100000:10\n", false],
  ["ann:100000\n", false],
  ["", false],
];

for (const [text, isEnough] of ranges) {
  test(`the user id ranges ${JSON.stringify(text)} ${isEnough ? "are" : "are not"} enough for ann`, () => {
    const check = (): void => checkUserIds("ann", 1001, text);
    if (isEnough) check();
    else expect(check).toThrow("remedy: sudo usermod --add-subuids");
  });
}
