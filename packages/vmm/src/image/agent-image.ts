import { createHash } from "node:crypto";
import { mkdir, readFile, rename, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { runStep, toolEnv } from "./build-context.ts";
import { imageFailure } from "./error.ts";
import { AGENT_CONTENT_BYTES_MAX, AGENT_DISK_BYTES_MAX, STEP_TIMEOUT_MS } from "./limits.ts";
import type { ImagePowers } from "./powers.ts";
import { BUILD_EPOCH_S, BUILDER_VERSION } from "./recipe.ts";

const AGENT_UUID = "ca95e300-0000-4000-8000-000000000005";
const AGENT_HASH_SEED = "ca95e300-0000-4000-8000-000000000006";
const DISK = "agent.ext4";
const MIB = 1024 * 1024;

type Contents = Readonly<Record<string, Buffer>>;

export interface AgentImageOptions {
  readonly cacheDir: string;
  readonly files: {
    readonly guestBundlePath: string;
    readonly helperPath: string;
    readonly recipeDir: string;
  };
  readonly signal?: AbortSignal | undefined;
}

/** `path` is a read-only ext4 with /guest.cjs, /capsem-helper and /ginit; `digest` names its inputs. */
export interface AgentImageRef {
  readonly digest: string;
  readonly path: string;
}

/**
 * The guest agent's own disk, apart from the root disk, so that an edit of the agent costs a boot and no image
 * build (under 100 ms). Needs no rights: the files become root's inside the disk.
 */
export async function buildAgentImage(
  powers: ImagePowers,
  options: AgentImageOptions,
): Promise<AgentImageRef> {
  const { files, cacheDir } = options;
  const contents = {
    "capsem-helper": await readInput(files.helperPath),
    ginit: await readInput(join(files.recipeDir, "ginit")),
    "guest.cjs": await readInput(files.guestBundlePath),
  };
  const digest = digestOfContents(contents);
  const dir = join(cacheDir, "agents", digest);
  const path = join(dir, DISK);
  if (await isFile(path)) return { digest, path };

  const buildDir = `${dir}.${powers.pid}.new`;
  await rm(buildDir, { recursive: true, force: true });
  try {
    await mkdir(join(buildDir, "content"), { recursive: true });
    for (const [name, bytes] of Object.entries(contents))
      await writeFile(join(buildDir, "content", name), bytes);
    await makeDisk(powers, options.signal, buildDir, contents);
    await rm(join(buildDir, "content"), { recursive: true });
    // Two builders make the same bytes; the second rename finds a full folder and is dropped.
    await rename(buildDir, dir).catch(async (cause: unknown) => {
      if (!(await isFile(path))) throw cause;
    });
  } finally {
    await rm(buildDir, { recursive: true, force: true });
  }
  return { digest, path };
}

function digestOfContents(contents: Contents): string {
  const hash = createHash("sha256").update(`agent ${BUILDER_VERSION}\n`);
  for (const [name, bytes] of Object.entries(contents))
    hash.update(`${name} ${bytes.length}\n`).update(bytes);
  return hash.digest("hex");
}

async function makeDisk(
  powers: ImagePowers,
  signal: AbortSignal = new AbortController().signal,
  dir: string,
  contents: Contents,
): Promise<void> {
  const env = toolEnv(powers.env, { E2FSPROGS_FAKE_TIME: String(BUILD_EPOCH_S) });
  const step = (program: string, args: readonly string[]): Promise<string> =>
    runStep(
      { powers, signal },
      { program, args, env, cwd: dir, timeoutMs: STEP_TIMEOUT_MS, purpose: "make the agent disk" },
    );
  await writeFile(join(dir, DISK), "");
  await truncate(join(dir, DISK), diskBytesFor(contents));
  await step("mkfs.ext4", [
    ...["-q", "-F", "-b", "4096", "-m", "0", "-N", "32", "-U", AGENT_UUID],
    ...["-O", "^has_journal,^resize_inode", "-E", `root_owner=0:0,hash_seed=${AGENT_HASH_SEED}`],
    DISK,
  ]);
  await writeFile(join(dir, "commands"), debugfsCommands(Object.keys(contents)));
  await step("debugfs", ["-w", "-f", "commands", DISK]);
  await rm(join(dir, "commands"));
  checkListing(await step("debugfs", ["-R", "ls -l /", DISK]), contents);
}

/** `mkfs -d` would keep the builder's user id and the file times; these commands set all of it. */
function debugfsCommands(names: readonly string[]): string {
  return names
    .flatMap((name) => [
      `write content/${name} ${name}`,
      `set_inode_field ${name} mode 0100755`,
      ...["uid", "gid"].map((field) => `set_inode_field ${name} ${field} 0`),
      ...["atime", "ctime", "mtime", "crtime"].map(
        (field) => `set_inode_field ${name} ${field} @${BUILD_EPOCH_S}`,
      ),
      "",
    ])
    .join("\n");
}

/** debugfs ends with 0 whatever happened: look at the result instead. Lines: inode mode (type) uid gid size date name. */
function checkListing(listing: string, contents: Contents): void {
  for (const [name, bytes] of Object.entries(contents)) {
    const line = listing.split("\n").find((each) => each.trimEnd().endsWith(` ${name}`));
    const [, mode, , uid, gid, size] = line?.trim().split(/\s+/) ?? [];
    if (mode === "100755" && uid === "0" && gid === "0" && size === String(bytes.length)) continue;
    throw imageFailure("image_build_failed", `Cannot make the agent disk: '${name}' was not written`, {
      detail: listing,
    });
  }
}

/** Content in whole blocks, a tenth more for the file system itself, and 512 KiB that a small one needs. */
function diskBytesFor(contents: Contents): number {
  const blocks = Object.values(contents).reduce((sum, bytes) => sum + Math.ceil(bytes.length / 4096), 0);
  const bytes = Math.ceil((blocks * 4096 * 1.1 + 512 * 1024) / MIB) * MIB;
  return Math.min(bytes, AGENT_DISK_BYTES_MAX);
}

async function readInput(path: string): Promise<Buffer> {
  try {
    const { size } = await stat(path);
    if (size <= AGENT_CONTENT_BYTES_MAX) return await readFile(path);
  } catch (cause) {
    throw imageFailure("image_build_failed", `Cannot make the agent disk: '${path}' is not readable`, {
      cause,
    });
  }
  throw imageFailure(
    "image_build_failed",
    `Cannot make the agent disk: '${path}' has more than ${AGENT_CONTENT_BYTES_MAX} bytes`,
  );
}

async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (facts) => facts.isFile(),
    () => false,
  );
}
