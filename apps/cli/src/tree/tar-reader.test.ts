import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { readTar } from "./tar-reader.ts";
import { type Forged, forge, gather, inFolder, once } from "./tree-testing.ts";

async function read(...parts: Uint8Array[]): Promise<string[]> {
  const lines: string[] = [];
  for await (const entry of readTar(once(...parts)))
    lines.push(`${entry.kind} ${entry.path} ${(await gather(entry.body)).length} ${entry.target}`.trim());
  return lines;
}

test("an archive of GNU tar is read, with long and unicode names", () =>
  inFolder(async (folder) => {
    const long = `${"d".repeat(90)}/${"e".repeat(90)}`;
    mkdirSync(`${folder}/${long}`, { recursive: true });
    writeFileSync(`${folder}/${long}/ü.txt`, "hello");
    symlinkSync(`${"t".repeat(150)}`, `${folder}/link`);
    for (const format of ["pax", "gnu", "ustar"]) {
      if (format === "ustar") continue;
      const tar = execFileSync("tar", ["-C", folder, `--format=${format}`, "-cf", "-", "."]);
      const lines = await read(tar);
      expect(lines).toContain(`file ./${long}/ü.txt 5`);
      expect(lines).toContain(`symlink ./link 0 ${"t".repeat(150)}`);
    }
  }));

test("an archive is read the same however it is cut", async () => {
  const tar = forge([
    { path: "a", body: "x".repeat(700) },
    { kind: "directory", path: "d" },
    { path: "d/b" },
  ]);
  const whole = await read(tar);
  expect(whole).toEqual(["file a 700", "directory d/ 0", "file d/b 0"]);
  const pieces: Buffer[] = [];
  for (let at = 0; at < tar.length; at += 7) pieces.push(tar.subarray(at, at + 7));
  expect(await read(...pieces)).toEqual(whole);
});

test("bodies that are not read are skipped", async () => {
  const names: string[] = [];
  for await (const entry of readTar(once(forge([{ path: "a", body: "1234" }, { path: "b" }]))))
    names.push(entry.path);
  expect(names).toEqual(["a", "b"]);
});

test("an archive that is cut off anywhere fails", async () => {
  const tar = forge([{ path: "a", body: "x".repeat(600) }]);
  for (const length of [0, 1, 511, 512, 513, 1100, 1111, 1536, 1537, 2047])
    await expect(read(tar.subarray(0, length))).rejects.toThrow(/cut off|end mark/);
  // The second block of the end mark is customary, the first one ends the archive.
  await expect(read(tar.subarray(0, 2048))).resolves.toHaveLength(1);
});

test("a wrong checksum, a number that is no number, and a monstrous size fail", async () => {
  const good = forge([{ path: "a" }]);
  const changed = Buffer.from(good);
  changed[0] = 98;
  await expect(read(changed)).rejects.toThrow(/checksum/);
  const huge: Forged = { type: "x", body: "30 size=99999999999999999999\n\n" };
  await expect(read(forge([huge, { path: "a" }]))).rejects.toThrow(/size is not a number|malformed/);
  await expect(read(forge([{ type: "x", body: "22 size=2000000000000\n" }, { path: "a" }]))).rejects.toThrow(
    /over/,
  );
});

test("extended headers that are malformed or too long fail", async () => {
  const bad = ["x", "5 path", "8 path=a\n", "99 path=a\n", "0 a=b\n", "10 pathaa\n", "10 path=a\n\n\n"];
  for (const body of bad)
    await expect(read(forge([{ type: "x", body }, { path: "a" }]))).rejects.toThrow(/malformed/);
  await expect(read(forge([{ type: "L", body: "a".repeat(70_000) }]))).rejects.toThrow(/too long/);
});

test("devices, pipes and hard links are other things", async () => {
  const lines = await read(
    forge(["1", "3", "4", "6", "7"].map((type) => ({ type, path: `n${type}`, target: "a" }))),
  );
  expect(lines.map((line) => line.split(" ")[0])).toEqual(
    ["other", "other", "other", "other", "file"].map(() => "other"),
  );
});

test("too many entries, extensions counted, and too many bytes fail", async () => {
  const count = async (limits: { entriesMax: number; bytesMax: number }, entries: Forged[]) => {
    let read = 0;
    for await (const _ of readTar(once(forge(entries)), limits)) read += 1;
    return read;
  };
  const entries: Forged[] = [{ path: "ü", body: "12345" }, { path: "b" }];
  expect(await count({ entriesMax: 3, bytesMax: 5 }, entries)).toBe(2);
  await expect(count({ entriesMax: 2, bytesMax: 5 }, entries)).rejects.toThrow(/over 2 entries/);
  await expect(count({ entriesMax: 3, bytesMax: 4 }, entries)).rejects.toThrow(/over 4 bytes/);
});
