import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { REPLACING } from "./judge.ts";
import { readTar } from "./tar-reader.ts";
import { type Forged, forge, gather, inFolder, once, withMode } from "./tree-testing.ts";
import { type UnpackReport, unpackTree } from "./unpack.ts";

function unpack(folder: string, entries: readonly Forged[]): Promise<UnpackReport> {
  return unpackTree(once(forge(entries)), folder, { judge: REPLACING });
}

/** What a careless program does: the attacks below must work on it, or they prove nothing. */
async function unpackNaively(folder: string, entries: readonly Forged[]): Promise<void> {
  for await (const entry of readTar(once(forge(entries)))) {
    const path = join(folder, entry.path);
    if (entry.kind === "directory") mkdirSync(path, { recursive: true });
    else if (entry.kind === "symlink") symlinkSync(entry.target, path);
    else {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, await gather(entry.body));
    }
  }
}

test("files, folders and links are made with modes, times and bytes", () =>
  inFolder(async (folder) => {
    const report = await unpack(folder, [
      { kind: "directory", path: "d", mode: 0o500 },
      { path: "d/run.sh", body: "#!/bin/sh\n", mode: 0o755, mtimeMs: 1_600_000_000_000 },
      { kind: "symlink", path: "d/up", target: "../d/run.sh" },
      { path: "ü/empty" },
    ]);
    expect(report.changed).toEqual(
      ["d/run.sh", "d/up", "ü/empty", "d"].sort(
        (a, b) => report.changed.indexOf(a) - report.changed.indexOf(b),
      ),
    );
    const file = statSync(`${folder}/d/run.sh`);
    expect([file.mode & 0o7777, file.mtimeMs]).toEqual([0o755, 1_600_000_000_000]);
    expect(statSync(`${folder}/d`).mode & 0o777).toBe(0o500);
    expect(readlinkSync(`${folder}/d/up`)).toBe("../d/run.sh");
    expect(readFileSync(`${folder}/ü/empty`)).toHaveLength(0);
    chmodSync(`${folder}/d`, 0o700);
  }));

test("a large file goes over a temporary one and none is left", () =>
  inFolder(async (folder) => {
    const body = Buffer.alloc(5_000_000, 1);
    await unpack(folder, [{ path: "big", body }]);
    expect(readFileSync(`${folder}/big`).equals(body)).toBe(true);
    const cut = forge([{ path: "other", body }]).subarray(0, 4_900_000);
    await expect(unpackTree(once(cut), folder, { judge: REPLACING })).rejects.toThrow(/cut off/);
    expect((await import("node:fs")).readdirSync(folder)).toEqual(["big"]);
  }));

const ATTACKS: [string, Forged[]][] = [
  ["climbing", [{ path: "../victim", body: "evil" }]],
  [
    "a link of the archive as a parent",
    [
      { kind: "symlink", path: "l", target: ".." },
      { path: "l/victim", body: "evil" },
    ],
  ],
  [
    "a link to a link as a parent",
    [
      { kind: "directory", path: "d" },
      { kind: "symlink", path: "d/l", target: "." },
      { kind: "symlink", path: "m", target: "d/l/../.." },
      { path: "m/victim", body: "evil" },
    ],
  ],
  ["a link that was there as a parent", [{ path: "there/victim", body: "evil" }]],
  ["a link that was there as the file", [{ path: "direct", body: "evil" }]],
];

for (const [name, entries] of ATTACKS)
  test(`${name} overwrites a file outside with a naive unpacker, and not with ours`, () =>
    inFolder(async (outer) => {
      const attacked = async (attack: (root: string) => Promise<unknown>): Promise<string> => {
        const at = join(outer, String(Math.random()));
        const root = join(at, "root");
        mkdirSync(root, { recursive: true });
        writeFileSync(join(at, "victim"), "safe");
        symlinkSync("..", join(root, "there"));
        symlinkSync("../victim", join(root, "direct"));
        await attack(root);
        return readFileSync(join(at, "victim"), "utf8");
      };
      expect(await attacked((root) => unpackNaively(root, entries))).toBe("evil");
      const ours = (root: string) => unpack(root, entries).then(undefined, (thrown: unknown) => thrown);
      expect(await attacked(ours)).toBe("safe");
    }));

test("archives that no honest sender makes fail as a whole", () =>
  inFolder(async (folder) => {
    const bad: Forged[][] = [
      [{ path: "/etc/x" }],
      [{ path: "a/../../x" }],
      [{ path: "a/.." }],
      [{ path: "n".repeat(300) }],
      [{ path: `${"d/".repeat(2100)}x` }],
      [{ path: "a" }, { path: "a" }],
      [{ path: "a" }, { path: "./a" }],
      [{ path: "a" }, { path: "a/b" }],
      [{ path: "a/b" }, { path: "a" }],
      [{ path: "a/b" }, { kind: "symlink", path: "a", target: "b" }],
      [{ type: "6", path: "p" }, { path: "p/x" }],
    ];
    for (const entries of bad)
      await expect(unpack(folder, entries)).rejects.toMatchObject({ kind: "file_failed" });
    expect(existsSync(`${dirname(folder)}/x`)).toBe(false);
  }));

test("devices, pipes, hard links and links that lead out are not made", () =>
  inFolder(async (folder) => {
    const types = ["1", "3", "4", "6"].map((type): Forged => ({ type, path: `t${type}`, target: "a" }));
    const targets = ["/etc/passwd", "..", "../x", "a/../../x", "a/..", ""];
    const links = targets.map((target, at): Forged => ({ kind: "symlink", path: `l${at}`, target }));
    const report = await unpack(folder, [...types, ...links]);
    expect(report.refused).toHaveLength(types.length + links.length);
    expect((await import("node:fs")).readdirSync(folder)).toEqual([]);
  }));

test("setuid, setgid and sticky bits do not come through", () =>
  inFolder(async (folder) => {
    const tar = withMode(forge([{ path: "su" }]), 0o7755);
    await unpackTree(once(tar), folder, { judge: REPLACING });
    expect(statSync(`${folder}/su`).mode & 0o7777).toBe(0o755);
  }));

test("names that are not UTF-8 are refused by name", () =>
  inFolder(async (folder) => {
    const tar = forge([{ path: "ab" }]);
    tar[0] = 0xff;
    const sum = tar.subarray(0, 512).reduce((all, byte, at) => all + (at >= 148 && at < 156 ? 32 : byte), 0);
    tar.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
    const report = await unpackTree(once(tar), folder, { judge: REPLACING });
    expect(report.refused).toEqual([{ path: "\ufffdb", reason: "its name is not UTF-8" }]);
  }));

test("a plain copy replaces files and links, and puts things beside a folder it would replace", () =>
  inFolder(async (folder) => {
    writeFileSync(`${folder}/f`, "old");
    symlinkSync("f", `${folder}/l`);
    mkdirSync(`${folder}/d`);
    const report = await unpack(folder, [
      { path: "f", body: "new" },
      { path: "l", body: "file" },
      { path: "d", body: "x" },
    ]);
    expect(readFileSync(`${folder}/f`, "utf8")).toBe("new");
    expect(lstatSync(`${folder}/l`).isFile()).toBe(true);
    expect(report.conflicts).toEqual([{ path: "d", beside: "d.capsem-guest" }]);
    expect(lstatSync(`${folder}/d`).isDirectory()).toBe(true);
  }));
