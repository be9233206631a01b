import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { kept } from "./kept.ts";

function rig() {
  const within = mkdtempSync(join(tmpdir(), "capsem-kept-"));
  onTestFinished(() => rmSync(within, { recursive: true, force: true }));
  let made = 0;
  const get = (hash: string) => {
    const folder = kept(
      "program",
      hash,
      (fresh) => {
        made += 1;
        writeFileSync(join(fresh, "program"), `made ${made}`);
      },
      within,
    );
    return readFileSync(join(folder, "program"), "utf8");
  };
  return { within, get };
}

test("what was made is found again, and something else is made for another hash", () => {
  const { within, get } = rig();
  expect([get("a"), get("a"), get("b"), get("a")]).toEqual(["made 1", "made 1", "made 2", "made 1"]);
  expect(readdirSync(within).sort()).toEqual(["program-a", "program-b"]);
});

test("what could not be made leaves nothing, and is tried again", () => {
  const { within, get } = rig();
  const fail = () => {
    throw new Error("no compiler");
  };
  expect(() => kept("program", "a", fail, within)).toThrow("no compiler");
  expect(readdirSync(within)).toEqual([]);
  expect(get("a")).toBe("made 1");
});

test("where another was first, its own is taken", () => {
  const { within } = rig();
  const late = (fresh: string) => {
    writeFileSync(join(fresh, "program"), "late");
    mkdirSync(join(within, "program-a"));
    writeFileSync(join(within, "program-a", "program"), "first");
  };
  const folder = kept("program", "a", late, within);
  expect(readFileSync(join(folder, "program"), "utf8")).toBe("first");
  expect(readdirSync(within)).toEqual(["program-a"]);
});

test("what is older than a day goes when something new is made", () => {
  const { within, get } = rig();
  get("a");
  get("b");
  const longAgo = Date.now() / 1_000 - 2 * 24 * 60 * 60;
  utimesSync(join(within, "program-a"), longAgo, longAgo);
  get("c");
  expect(readdirSync(within).sort()).toEqual(["program-b", "program-c"]);
});
