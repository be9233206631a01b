import { readdirSync } from "node:fs";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { REPLACING } from "./judge.ts";
import { type Forged, forge, inFolder, once } from "./tree-testing.ts";
import { unpackTree } from "./unpack.ts";

const ROUNDS = 200;
const NAMES = [
  "a",
  "b",
  "a/b",
  "a/b/c",
  "../x",
  "/x",
  "a/../../x",
  ".",
  "..",
  "l",
  "l/x",
  "l/../x",
  "\u00fc",
  "a//b/",
];
const TARGETS = ["..", "/tmp", "a", "../..", "a/../..", "", "l"];

/** mulberry32: small, seeded, good enough to choose cases. */
function chooser(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

function forgeAny(choose: (below: number) => number): Buffer {
  const pick = (words: readonly string[]) => words[choose(words.length)] ?? "";
  const entries = Array.from({ length: 1 + choose(6) }, (): Forged => {
    const kind = (["file", "directory", "symlink"] as const)[choose(3)] ?? "file";
    const path = pick(NAMES);
    const target = kind === "symlink" ? pick(TARGETS) : "";
    return { kind, path, target, body: kind === "file" ? "z".repeat(choose(900)) : "", mode: choose(0o1000) };
  });
  const tar = forge(entries);
  for (let flips = choose(4); flips > 0; flips -= 1) tar[choose(tar.length)] = choose(256);
  return choose(4) === 0 ? tar.subarray(0, choose(tar.length)) : tar;
}

test("no archive makes anything outside its folder, and each failure is an operating error", () =>
  inFolder(async (outer) => {
    const { mkdirSync, rmSync, symlinkSync } = await import("node:fs");
    const seed = 20_260_101;
    const choose = chooser(seed);
    for (let round = 0; round < ROUNDS; round += 1) {
      const root = `${outer}/root`;
      mkdirSync(root);
      if (choose(2) === 0) symlinkSync("..", `${root}/l`);
      try {
        await unpackTree(once(forgeAny(choose)), root, { judge: REPLACING });
      } catch (thrown) {
        expect(thrown, `seed ${seed}, round ${round}`).toBeInstanceOf(Failure);
      }
      expect(readdirSync(outer), `seed ${seed}, round ${round}`).toEqual(["root"]);
      rmSync(root, { recursive: true, force: true });
    }
  }));
