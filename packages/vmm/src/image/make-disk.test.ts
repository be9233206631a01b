import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { fileFactsOf } from "./manifest.ts";
import { BUILD_EPOCH_S } from "./recipe.ts";
import { DEBIAN_PATH } from "./requirements.ts";

const SCRIPT = fileURLToPath(new URL("../../../../guest-image/recipe/make-disk.sh", import.meta.url));

async function makeTree(dir: string): Promise<void> {
  await mkdir(join(dir, "etc"), { recursive: true });
  for (let index = 0; index < 40; index += 1) await writeFile(join(dir, "etc", `file${index}`), `${index}`);
  await writeFile(join(dir, "old.py"), "print(1)\n");
  await symlink("etc/file1", join(dir, "link"));
}

function makeDisk(tree: string, disk: string): void {
  execFileSync(SCRIPT, [tree, disk], {
    env: {
      PATH: DEBIAN_PATH,
      CAPSEM_EPOCH: String(BUILD_EPOCH_S),
      CAPSEM_UUID: "ca95e300-0000-4000-8000-000000000007",
      CAPSEM_HASH_SEED: "ca95e300-0000-4000-8000-000000000008",
    },
    stdio: "pipe",
  });
}

function statOf(disk: string, path: string): string {
  return execFileSync("debugfs", ["-R", `stat ${path}`, disk], {
    env: { PATH: DEBIAN_PATH },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
}

test("the same tree built twice gives the same bytes, whatever its access and change times", async () => {
  const dir = await mkdtemp(join(tmpdir(), "capsem-disk-"));
  try {
    const tree = join(dir, "tree");
    await makeTree(tree);
    await utimes(join(tree, "old.py"), 5, BUILD_EPOCH_S + 999);
    makeDisk(tree, join(dir, "one"));
    await utimes(join(tree, "etc", "file7"), 7, BUILD_EPOCH_S);
    makeDisk(tree, join(dir, "two"));
    expect(await fileFactsOf(join(dir, "two"))).toEqual(await fileFactsOf(join(dir, "one")));
    execFileSync("e2fsck", ["-fn", join(dir, "one")], { env: { PATH: DEBIAN_PATH }, stdio: "pipe" });

    const epoch = `0x${BUILD_EPOCH_S.toString(16)}`;
    for (const path of ["/", "/etc", "/etc/file39", "/link"]) {
      const facts = statOf(join(dir, "one"), path);
      for (const time of ["ctime", "atime", "mtime", "crtime"]) {
        expect(facts, `${time} of ${path}`).toContain(`${time}: ${epoch}`);
      }
    }
    // A Python source must keep the time that its compiled file notes.
    expect(statOf(join(dir, "one"), "/old.py")).toContain(`mtime: 0x${(BUILD_EPOCH_S + 999).toString(16)}`);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}, 60_000);
