import { textOf, utf8 } from "@capsem/base";
import { expect, test } from "vitest";
import { encodeInitramfs } from "./initramfs.ts";
import type { KernelModule } from "./kernel-modules.ts";

const module = (name: string): KernelModule => ({
  name,
  depends: [],
  aliases: [],
  path: `kernel/${name}.ko`,
  bytes: utf8(`bytes of ${name}`),
});

test("the first root file system names its modules in the order in which they load", () => {
  const text = textOf(encodeInitramfs("#!/bin/busybox sh\n", utf8("busybox"), [module("b"), module("a")]));
  expect(text).toContain("b.ko\na.ko\n");
  for (const path of ["init", "bin/busybox", "bin/mount", "dev/console", "modules/b.ko", "newroot"]) {
    expect(text).toContain(`${path}\0`);
  }
});
