import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { digestOf, encodeManifest, type ImageManifest, parseManifest, parsePackageList } from "./manifest.ts";

const facts = { bytes: 1, sha256: "0".repeat(64) };
const manifest: ImageManifest = {
  format: 1,
  recipe: "a".repeat(64),
  suite: "stable",
  arch: "amd64",
  kernelVersion: "6.1",
  nodeVersion: "20.20.2",
  npmVersion: "10.9.9",
  packages: ["bash=5.2"],
  files: { "root.ext4": facts, vmlinuz: facts, "initrd.cpio": facts, "pristine.qcow2": facts },
};

test("a manifest survives being written and read", () => {
  expect(parseManifest(encodeManifest(manifest))).toEqual(manifest);
});

test("another package version gives another digest", () => {
  const other = { ...manifest, packages: ["bash=5.3"] };
  expect(digestOf(encodeManifest(other))).not.toBe(digestOf(encodeManifest(manifest)));
});

const refused: readonly (readonly [string, unknown])[] = [
  ["an unknown format", { ...manifest, format: 2 }],
  ["a field that we do not know", { ...manifest, more: 1 }],
  ["a missing file", { ...manifest, files: { vmlinuz: facts } }],
  ["a file of the peer's choice", { ...manifest, files: { ...manifest.files, "../x": facts } }],
  ["a checksum in capitals", { ...manifest, recipe: "A".repeat(64) }],
  ["an empty file", { ...manifest, files: { ...manifest.files, vmlinuz: { ...facts, bytes: 0 } } }],
  ["no object", []],
];

for (const [what, value] of refused) {
  test(`a manifest with ${what} is corrupt`, () => {
    expect(() => parseManifest(JSON.stringify(value))).toThrow(Failure);
  });
}

test("a cut manifest is corrupt", () => {
  const text = encodeManifest(manifest);
  for (const length of [0, 1, text.length / 2, text.length - 3]) {
    expect(() => parseManifest(text.slice(0, length))).toThrow(Failure);
  }
});

test("only installed packages are listed, sorted", () => {
  const status = [
    "Package: zlib1g\nStatus: install ok installed\nPriority: optional\nVersion: 1:1.2-3\nDescription: x\n",
    "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n",
    "Package: bash\nEssential: yes\nStatus: install ok installed\nVersion: 5.2-1\nDescription: a\n Version: no\n",
    "Package: half\nStatus: install ok unpacked\nVersion: 1\n",
    "",
  ].join("\n");
  expect(parsePackageList(status)).toEqual(["bash=5.2-1", "zlib1g=1:1.2-3"]);
});
