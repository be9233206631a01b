import { Bug, textOf } from "@capsem/base";
import { expect, test } from "vitest";
import { type CpioEntry, encodeCpio } from "./cpio.ts";

interface Read {
  readonly path: string;
  readonly fields: readonly number[];
  readonly content: Uint8Array;
}

/** Reads an archive by the format's own words, independent of the writer. */
function decode(bytes: Uint8Array): Read[] {
  const entries: Read[] = [];
  let at = 0;
  for (;;) {
    expect(textOf(bytes.subarray(at, at + 6))).toBe("070701");
    const fields = Array.from({ length: 13 }, (_, index) =>
      Number.parseInt(textOf(bytes.subarray(at + 6 + index * 8, at + 14 + index * 8)), 16),
    );
    const [fileSize = 0, nameSize = 0] = [fields[6], fields[11]];
    const path = textOf(bytes.subarray(at + 110, at + 110 + nameSize - 1));
    at = upTo4(at + 110 + nameSize);
    const content = bytes.slice(at, at + fileSize);
    at = upTo4(at + fileSize);
    if (path === "TRAILER!!!") return entries;
    entries.push({ path, fields, content });
  }
}

function upTo4(at: number): number {
  return Math.ceil(at / 4) * 4;
}

const folder: CpioEntry = { kind: "directory", path: "dev", mode: 0o755 };

test("an archive gives back folders, files, links and devices", () => {
  const entries = decode(
    encodeCpio([
      folder,
      { kind: "device", path: "dev/console", mode: 0o600, major: 5, minor: 1 },
      { kind: "file", path: "init", mode: 0o755, bytes: new Uint8Array([1, 2, 3, 4, 5]) },
      { kind: "link", path: "sh", target: "init" },
    ]),
  );
  expect(entries.map((entry) => entry.path)).toEqual(["dev", "dev/console", "init", "sh"]);
  expect(entries.map((entry) => entry.fields[1]?.toString(8))).toEqual([
    "40755",
    "20600",
    "100755",
    "120777",
  ]);
  expect(entries[1]?.fields.slice(9, 11)).toEqual([5, 1]);
  expect([...(entries[2]?.content ?? [])]).toEqual([1, 2, 3, 4, 5]);
  expect(textOf(entries[3]?.content ?? new Uint8Array(0))).toBe("init");
});

test("every entry belongs to root, has time 0 and an inode of its own", () => {
  const entries = decode(encodeCpio([folder, { kind: "link", path: "a", target: "b" }]));
  expect(entries.map((entry) => entry.fields[0])).toEqual([1, 2]);
  expect(entries.flatMap((entry) => [entry.fields[2], entry.fields[3], entry.fields[5]])).toEqual(
    new Array(6).fill(0),
  );
});

for (let length = 0; length <= 9; length += 1) {
  test(`content of ${length} bytes is padded so that the next entry is found`, () => {
    const bytes = new Uint8Array(length).fill(7);
    const archive = encodeCpio([{ kind: "file", path: "x".repeat(length + 1), mode: 0o644, bytes }, folder]);
    expect(archive.length % 512).toBe(0);
    const entries = decode(archive);
    expect(entries[0]?.content).toEqual(bytes);
    expect(entries[1]?.path).toBe("dev");
  });
}

const refused: readonly (readonly [string, readonly CpioEntry[]])[] = [
  ["an absolute path", [{ ...folder, path: "/dev" }]],
  ["an empty path", [{ ...folder, path: "" }]],
  ["a path through the parent", [folder, { ...folder, path: "dev/../x" }]],
  ["a path with a lone dot", [{ ...folder, path: "./dev" }]],
  ["a path with a NUL", [{ ...folder, path: "a\0b" }]],
  ["the name that ends an archive", [{ ...folder, path: "TRAILER!!!" }]],
  ["a file before its folder", [{ kind: "link", path: "dev/x", target: "y" }]],
  ["the same path twice", [folder, folder]],
  ["a mode with type bits", [{ ...folder, mode: 0o40755 }]],
  ["a device number that is no integer", [{ kind: "device", path: "n", mode: 0, major: 1.5, minor: 0 }]],
  ["a device number that is too large", [{ kind: "device", path: "n", mode: 0, major: 2 ** 32, minor: 0 }]],
];

for (const [what, entries] of refused) {
  test(`${what} is refused`, () => {
    expect(() => encodeCpio(entries)).toThrow(Bug);
  });
}
