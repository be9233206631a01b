import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { join } from "node:path";
import { imageFailure } from "./error.ts";

/** The Debian package of every program that the build starts. */
export const BUILD_PROGRAMS: Readonly<Record<string, string>> = {
  "apt-get": "apt",
  "apt-cache": "apt",
  "apt-config": "apt",
  awk: "mawk",
  cp: "coreutils",
  debugfs: "e2fsprogs",
  "dpkg-deb": "dpkg",
  dumpe2fs: "e2fsprogs",
  find: "findutils",
  "mkfs.ext4": "e2fsprogs",
  mmdebstrap: "mmdebstrap",
  "qemu-img": "qemu-utils",
  setpriv: "util-linux",
  tar: "tar",
  gzip: "gzip",
  xz: "xz-utils",
};

/** Who is not root maps users through these. */
const USER_PROGRAMS: Readonly<Record<string, string>> = { newuidmap: "uidmap", newgidmap: "uidmap" };

/** Where Debian's programs are; the user's own PATH may lack the sbin folders or shadow programs. */
export const DEBIAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** The Debian packages that are missing for a build, by name. */
export async function missingPackages(isRoot: boolean, path: string = DEBIAN_PATH): Promise<string[]> {
  const programs = isRoot ? BUILD_PROGRAMS : { ...BUILD_PROGRAMS, ...USER_PROGRAMS };
  const missing = new Set<string>();
  for (const [program, debianPackage] of Object.entries(programs)) {
    if (!(await isOnPath(program, path))) missing.add(debianPackage);
  }
  return [...missing].sort();
}

export async function checkPrograms(isRoot: boolean, npmPath: string): Promise<void> {
  const missing = await missingPackages(isRoot);
  if (missing.length > 0) {
    const list = missing.join(" ");
    throw imageFailure(
      "image_tool_missing",
      `Cannot build the image: Debian packages are missing: ${list} (remedy: sudo apt-get install ${list})`,
    );
  }
  if (!(await isOnPath("npm", npmPath))) {
    throw imageFailure("image_tool_missing", "Cannot build the image: npm is not on the PATH");
  }
}

/** A user other than root builds in a user namespace and needs a range of user ids for it. */
export function checkUserIds(user: string, userId: number, subuid: string): void {
  const has = subuid.split("\n").some((line) => {
    const [name, , count] = line.split(":");
    return (name === user || name === String(userId)) && Number(count) >= 65536;
  });
  if (has) return;
  throw imageFailure(
    "image_host_unsupported",
    `Cannot build the image: user '${user}' has no range in /etc/subuid and /etc/subgid ` +
      `(remedy: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ${user})`,
  );
}

async function isOnPath(program: string, path: string): Promise<boolean> {
  for (const dir of path.split(":")) {
    if (dir === "") continue;
    const found = await access(join(dir, program), constants.X_OK).then(
      () => true,
      () => false,
    );
    if (found) return true;
  }
  return false;
}
