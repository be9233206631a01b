import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type AgentImageOptions, buildAgentImage } from "./agent-image.ts";
import { AGENT_CONTENT_BYTES_MAX, AGENT_DISK_BYTES_MAX } from "./limits.ts";
import { imagePowers } from "./powers-node.ts";
import { DEBIAN_PATH } from "./requirements.ts";

async function withInputs(use: (options: AgentImageOptions) => Promise<void>): Promise<void> {
  // A blank in the path, as in a home folder that its user named.
  const dir = await mkdtemp(join(tmpdir(), "capsem agent-"));
  try {
    const files = { guestBundlePath: join(dir, "g.js"), helperPath: join(dir, "h"), recipeDir: dir };
    await writeFile(files.guestBundlePath, "console.log(1)\n");
    await writeFile(files.helperPath, new Uint8Array(50_000).fill(9));
    await writeFile(join(dir, "ginit"), "#!/bin/busybox sh\n");
    await use({ cacheDir: join(dir, "cache"), files });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

function debugfs(path: string, request: string): string {
  return execFileSync("debugfs", ["-R", request, path], {
    env: { PATH: DEBIAN_PATH },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
}

test("the agent disk is small, clean, and holds the three files as root's", () =>
  withInputs(async (options) => {
    const { path } = await buildAgentImage(imagePowers(), options);
    expect((await stat(path)).size).toBeLessThan(2 * 1024 * 1024);
    execFileSync("e2fsck", ["-fn", path], { env: { PATH: DEBIAN_PATH }, stdio: "pipe" });
    expect(debugfs(path, "cat /guest.cjs")).toBe("console.log(1)\n");
    expect(debugfs(path, "cat /ginit")).toBe("#!/bin/busybox sh\n");
    expect(debugfs(path, "ls -l /")).toMatch(/100755 \(1\) +0 +0 +50000 .* capsem-helper/);
  }));

test("the same inputs are not built again, and another cache gets the same bytes", () =>
  withInputs(async (options) => {
    const first = await buildAgentImage(imagePowers(), options);
    const { mtimeMs } = await stat(first.path);
    expect(await buildAgentImage(imagePowers(), options)).toEqual(first);
    expect((await stat(first.path)).mtimeMs).toBe(mtimeMs);
    const again = await buildAgentImage(imagePowers(), { ...options, cacheDir: `${options.cacheDir}2` });
    expect(again.digest).toBe(first.digest);
    expect((await readFile(again.path)).equals(await readFile(first.path))).toBe(true);
  }));

test("two builders at once both get the disk and leave nothing else", () =>
  withInputs(async (options) => {
    const powers = imagePowers();
    const [one, two] = await Promise.all([
      buildAgentImage(powers, options),
      buildAgentImage({ ...powers, pid: 1 }, options),
    ]);
    expect(two).toEqual(one);
    expect(await readdir(join(options.cacheDir, "agents"))).toEqual([one?.digest]);
  }));

test("an edit of any input gives another disk", () =>
  withInputs(async (options) => {
    const digests = new Set([(await buildAgentImage(imagePowers(), options)).digest]);
    const { files } = options;
    for (const path of [files.guestBundlePath, files.helperPath, join(files.recipeDir, "ginit")]) {
      await writeFile(path, "edited");
      digests.add((await buildAgentImage(imagePowers(), options)).digest);
    }
    expect(digests.size).toBe(4);
  }));

test("the largest content fits its disk", () =>
  withInputs(async (options) => {
    const { files } = options;
    await writeFile(files.guestBundlePath, new Uint8Array(AGENT_CONTENT_BYTES_MAX - 100_000).fill(1));
    const { path } = await buildAgentImage(imagePowers(), options);
    expect((await stat(path)).size).toBeLessThanOrEqual(AGENT_DISK_BYTES_MAX);
  }));

test("an input that is absent or too large is refused and leaves no files", () =>
  withInputs(async (options) => {
    const { files } = options;
    await writeFile(files.helperPath, new Uint8Array(AGENT_CONTENT_BYTES_MAX + 1));
    await expect(buildAgentImage(imagePowers(), options)).rejects.toMatchObject({
      kind: "image_build_failed",
    });
    await rm(files.helperPath);
    await expect(buildAgentImage(imagePowers(), options)).rejects.toMatchObject({
      kind: "image_build_failed",
    });
    await expect(readdir(options.cacheDir)).rejects.toMatchObject({ code: "ENOENT" });
  }));
