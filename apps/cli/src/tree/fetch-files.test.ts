import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import type { FileInfo } from "@capsem/api";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { comeHome } from "./come-home.ts";
import { type FileSource, fetchFiles } from "./fetch-files.ts";
import { REPLACING } from "./judge.ts";
import type { TreeLimits } from "./limits.ts";
import { packTree } from "./pack.ts";
import { gather, inFolder } from "./tree-testing.ts";
import { placeEntries } from "./unpack.ts";

function info(name: string, type: FileInfo["type"] = "file", more: Partial<FileInfo> = {}): FileInfo {
  return { name, type, size: 1, mode: 0o644, mtime_ms: 1_000_000, uid: 0, gid: 0, ...more };
}

type Folders = Readonly<Record<string, readonly FileInfo[] | "refused">>;
const refusal = () => new Failure("policy", "no");

/** A guest that says what a test wants it to, in pages of two. */
function guest(folders: Folders, open: FileSource["open"] = async () => ({ size: 1, body: parts("x") })) {
  const left: string[] = [];
  const source: FileSource = {
    list: async (path, offset) => {
      const found = folders[path] ?? [];
      if (found === "refused") throw refusal();
      return { entries: found.slice(offset, offset + 2), more: offset + 2 < found.length };
    },
    open,
    refusalOf: (thrown) => (thrown instanceof Failure && thrown.kind === "policy" ? thrown.message : null),
    left: (path) => left.push(path),
  };
  return { source, left };
}

async function* parts(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

function place(source: FileSource, folder: string, limits?: TreeLimits) {
  return placeEntries(fetchFiles(source, limits), folder, { judge: REPLACING });
}

test("a folder comes depth first, each page of it, and what is refused is named", () =>
  inFolder(async (folder) => {
    const { source, left } = guest(
      {
        "": [info("a"), info("b", "directory"), info("c", "directory"), info("d"), info("l", "symlink")],
        b: [info("one"), info("two"), info("three")],
        c: "refused",
      },
      async (path) => {
        if (path === "b/two") throw refusal();
        return { size: path.length, body: parts(path) };
      },
    );
    const report = await place(source, folder);
    expect(report.refused).toEqual([
      { path: "b/two", reason: "no" },
      { path: "c", reason: "no" },
    ]);
    expect(left).toEqual(["l"]);
    expect(readdirSync(folder).sort()).toEqual(["a", "b", "d"]);
    expect(readFileSync(`${folder}/b/three`, "utf8")).toBe("b/three");
  }));

const HOSTILE: [string, Folders, RegExp][] = [
  ["a name that climbs", { "": [info("..")] }, /is no name/],
  ["a name that is the folder itself", { "": [info(".")] }, /is no name/],
  ["a name with a folder in it", { "": [info("a/../../b")] }, /is no name/],
  ["an absolute name", { "": [info("/etc/passwd")] }, /is no name/],
  ["a name that is empty", { "": [info("")] }, /is no name/],
  ["a name with NUL", { "": [info("a\0")] }, /NUL/],
  ["a name that is too long", { "": [info("n".repeat(256))] }, /too long/],
  [
    "more entries than may be",
    { "": Array.from({ length: 11 }, (_, at) => info(`f${at}`)) },
    /over 10 entries/,
  ],
];
test.each(HOSTILE)("%s ends the copy, and nothing of it is made", (_, folders, text) =>
  inFolder(async (folder) => {
    const { source } = guest(folders);
    await expect(place(source, folder, { bytesMax: 100, entriesMax: 10 })).rejects.toThrow(text);
    expect(readdirSync(folder)).toEqual([]);
  }),
);

test("more bytes than may be end the copy, whatever a list said of them", () =>
  inFolder(async (folder) => {
    const { source } = guest({ "": [info("a")] }, async () => ({ size: 101, body: parts("x") }));
    await expect(place(source, folder, { bytesMax: 100, entriesMax: 10 })).rejects.toThrow(/over 100 bytes/);
  }));

test.each([
  ["more", "xyz"],
  ["less", ""],
])("a file with %s bytes than were said is not copied, and the others are", (_, text) =>
  inFolder(async (folder) => {
    const { source } = guest({ "": [info("a"), info("b")] }, async (path) => ({
      size: 1,
      body: path === "a" ? parts(text) : parts("x"),
    }));
    const report = await place(source, folder);
    expect(report.refused).toEqual([{ path: "a", reason: "it changed while it was copied" }]);
    expect(readdirSync(folder)).toEqual(["b"]);
  }),
);

test("one that two pages have is there once", () =>
  inFolder(async (folder) => {
    const { source } = guest({ "": [info("a"), info("b"), info("b"), info("c")] });
    expect((await place(source, folder)).changed).toEqual(["a", "b", "c"]);
  }));

test("a name that is no UTF-8, and what is neither file nor folder, stays there", () =>
  inFolder(async (folder) => {
    const { source } = guest({ "": [info("\ufffd", "file", { lossy: true }), info("p", "other")] });
    expect((await place(source, folder)).refused).toEqual([
      { path: "\ufffd", reason: "its name is not UTF-8" },
      { path: "p", reason: "it is not a file, folder or link" },
    ]);
  }));

test("a failure that is about the whole ends it", () =>
  inFolder(async (folder) => {
    const { source } = guest({ "": [info("a")] }, async () => {
      throw new Failure("vm_gone", "the VM ended");
    });
    await expect(place(source, folder)).rejects.toThrow("the VM ended");
  }));

test("nothing in a folder that was refused counts as removed", () =>
  inFolder(async (folder) => {
    mkdirSync(`${folder}/c/deep`, { recursive: true });
    for (const name of ["a", "gone", "c/f", "c/deep/f"]) writeFileSync(`${folder}/${name}`, "x");
    const { tar, baseline } = packTree(folder, { warn: (text) => expect.fail(text) });
    await gather(tar);
    const { source } = guest({ "": [info("a"), info("c", "directory")], c: "refused" });
    const report = await comeHome(fetchFiles(source), folder, baseline, { deletes: true });
    expect(report).toMatchObject({ deleted: ["gone"], kept: [], refused: [{ path: "c" }] });
    expect(readdirSync(folder, { recursive: true }).sort()).toEqual(["a", "c", "c/deep", "c/deep/f", "c/f"]);
  }));
