import { Failure, utf8 } from "@capsem/base";
import { expect, test } from "vitest";
import {
  type KernelModule,
  type ModuleFacts,
  moduleNameOf,
  modulesAliasText,
  modulesDepText,
  orderModules,
  parseModuleFacts,
} from "./kernel-modules.ts";

const names: readonly (readonly [string, string | undefined])[] = [
  ["virtio_blk.ko", "virtio_blk"],
  ["virtio-rng.ko", "virtio_rng"],
  ["virtio-rng.ko.xz", "virtio_rng"],
  ["modules.dep", undefined],
  [".ko", undefined],
  ["x.ko.gz", undefined],
];

for (const [fileName, name] of names) {
  test(`the file ${fileName} holds ${name ?? "no module"}`, () => {
    expect(moduleNameOf(fileName)).toBe(name);
  });
}

test("dependencies and aliases are read out of the module", () => {
  const file = utf8(
    "\u007fELF\0junk\0alias=virtio:d2v*\0alias=rtnl-link-x\0depends=virtio,virtio-ring\0name=m\0",
  );
  expect(parseModuleFacts("m", file)).toEqual({
    name: "m",
    depends: ["virtio", "virtio_ring"],
    aliases: ["virtio:d2v*", "rtnl-link-x"],
  });
});

test("a module that needs nothing says so by an empty list", () => {
  expect(parseModuleFacts("m", utf8("\0depends=\0")).depends).toEqual([]);
});

for (const text of ["", "depends=a", "no facts\0", "\0xdepends=a\0"]) {
  test(`a file with ${JSON.stringify(text)} is no module`, () => {
    expect(() => parseModuleFacts("m", utf8(text))).toThrow(Failure);
  });
}

function graph(
  edges: Readonly<Record<string, readonly string[]>>,
): (name: string) => ModuleFacts | undefined {
  return (name) => {
    const depends = edges[name];
    return depends === undefined ? undefined : { name, depends, aliases: [] };
  };
}

test("a module comes after all that it needs, once", () => {
  const load = graph({ blk: ["virtio", "ring"], console: ["virtio"], virtio: ["ring"], ring: [] });
  expect(orderModules(["blk", "console"], load).map((module) => module.name)).toEqual([
    "ring",
    "virtio",
    "blk",
    "console",
  ]);
});

test("a missing module is named together with the one that needs it", () => {
  expect(() => orderModules(["blk"], graph({ blk: ["gone"] }))).toThrow(
    "Cannot find kernel module 'gone' for 'blk'",
  );
  expect(() => orderModules(["gone"], graph({}))).toThrow("Cannot find kernel module 'gone' for the recipe");
});

test("modules that need each other are refused", () => {
  expect(() => orderModules(["a"], graph({ a: ["b"], b: ["a"] }))).toThrow("depends on itself");
});

test("the tables for modprobe name files, what they need, and what they answer to", () => {
  const module = (name: string, depends: readonly string[], aliases: readonly string[]): KernelModule => ({
    name,
    depends,
    aliases,
    path: `kernel/${name}.ko`,
    bytes: new Uint8Array(0),
  });
  const modules = [
    module("ring", [], []),
    module("virtio", ["ring"], []),
    module("blk", ["virtio"], ["x:*"]),
  ];
  expect(modulesDepText(modules)).toBe(
    "kernel/ring.ko:\nkernel/virtio.ko: kernel/ring.ko\nkernel/blk.ko: kernel/virtio.ko kernel/ring.ko\n",
  );
  expect(modulesAliasText(modules)).toBe("alias x:* blk\n");
});
