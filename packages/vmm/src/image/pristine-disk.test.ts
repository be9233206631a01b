import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { DISK_BYTES } from "./limits.ts";
import { fileFactsOf } from "./manifest.ts";
import { imagePowers } from "./powers-node.ts";
import { makePristineDisk } from "./pristine-disk.ts";
import { DEBIAN_PATH } from "./requirements.ts";

const debianPath = { env: { PATH: DEBIAN_PATH }, encoding: "utf8" } as const;

async function makeIn(dir: string, name: string): Promise<string> {
  const scratchDir = join(dir, `${name}-scratch`);
  const buildDir = join(dir, name);
  await mkdir(scratchDir);
  await mkdir(buildDir);
  await makePristineDisk({
    powers: imagePowers(),
    signal: new AbortController().signal,
    scratchDir,
    buildDir,
  });
  return join(buildDir, "pristine.qcow2");
}

test("the empty disk is small, clean, of the fixed size, and always has the same bytes", async () => {
  const dir = await mkdtemp(join(tmpdir(), "capsem-pristine-"));
  try {
    const first = await makeIn(dir, "a");
    const second = await makeIn(dir, "b");
    expect(await fileFactsOf(first)).toEqual(await fileFactsOf(second));
    expect((await stat(first)).size).toBeLessThan(16 * 1024 * 1024);

    const info = JSON.parse(execFileSync("qemu-img", ["info", "--output=json", first], debianPath));
    expect(info["virtual-size"]).toBe(DISK_BYTES);

    const raw = join(dir, "a-scratch", "pristine.raw");
    // -n changes nothing; the exit status, not the text, says that there was nothing to repair.
    execFileSync("e2fsck", ["-fn", raw], { ...debianPath, stdio: "pipe" });
    const features = execFileSync("dumpe2fs", ["-h", raw], { ...debianPath, stdio: "pipe" });
    expect(features).toContain("has_journal");
    const listing = execFileSync("debugfs", ["-R", "ls -l /", raw], { ...debianPath, stdio: "pipe" });
    expect(listing).toMatch(/ 40755 \(2\) +0 +0 .* u\s/);
    expect(listing).toMatch(/ 40755 \(2\) +0 +0 .* w\s/);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}, 60_000);
