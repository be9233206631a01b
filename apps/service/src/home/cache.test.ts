import {
  chmodSync,
  chownSync,
  lchownSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { checkCache } from "./cache.ts";

const uid = process.getuid?.() ?? -1;
const stranger = 4_242;
let cache = "";
beforeEach(() => {
  cache = realpathSync(mkdtempSync(join(tmpdir(), "capsem-cache-")));
  mkdirSync(join(cache, "images", "digest"), { recursive: true });
  writeFileSync(join(cache, "images", "digest", "root.ext4"), "an image");
  mkdirSync(join(cache, "goldens"));
});
afterEach(() => rmSync(cache, { recursive: true, force: true }));

const check = (as = uid) => checkCache({ home: "/nowhere", cache }, as);

test("a cache of our own passes, and what our group could write is closed", async () => {
  chmodSync(join(cache, "images"), 0o775);
  chmodSync(join(cache, "images", "digest", "root.ext4"), 0o664);
  await check();
  expect(statSync(join(cache, "images")).mode & 0o777).toBe(0o755);
  expect(statSync(join(cache, "images", "digest", "root.ext4")).mode & 0o777).toBe(0o644);
});

test.runIf(uid === 0)("root's cache is everybody's to read", async () => {
  await check(stranger);
  chmodSync(join(cache, "goldens"), 0o775);
  await expect(check(stranger)).rejects.toThrow("its group may write it");
});

test.each(["", "images", "images/digest", "images/digest/root.ext4"])(
  "a cache is refused where everybody may write %j",
  async (name) => {
    chmodSync(join(cache, name), 0o777);
    await expect(check()).rejects.toThrow(`"${join(cache, name)}": everybody may write it`);
  },
);

test.runIf(uid === 0).each(["", "images", "images/digest", "images/digest/root.ext4"])(
  "a cache is refused where another user owns %j",
  async (name) => {
    chownSync(join(cache, name), stranger, stranger);
    await expect(check()).rejects.toMatchObject({ kind: "cache_unsafe" });
  },
);

test.runIf(uid === 0)("a link that another user made is refused", async () => {
  symlinkSync("/etc/passwd", join(cache, "images", "digest", "vmlinuz"));
  lchownSync(join(cache, "images", "digest", "vmlinuz"), stranger, stranger);
  await expect(check()).rejects.toThrow("vmlinuz");
});
