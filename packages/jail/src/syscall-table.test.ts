import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { type Arch, numberOf, SYSCALLS, type Syscall } from "./syscall-table.ts";

/** Where a compiler finds each machine's own numbers; the generic table is that of arm64. */
const HEADERS: Readonly<Record<Arch, string>> = {
  x64: "#include <asm/unistd_64.h>",
  arm64: [
    "#define __ARCH_WANT_RENAMEAT",
    "#define __ARCH_WANT_NEW_STAT",
    "#define __ARCH_WANT_SET_GET_RLIMIT",
    "#define __ARCH_WANT_SYS_CLONE3",
    "#define __BITS_PER_LONG 64",
    "#include <asm-generic/unistd.h>",
  ].join("\n"),
};

function numbersOf(arch: Arch): Map<string, number> {
  const { stdout, status } = spawnSync("gcc", ["-E", "-dM", "-"], { input: HEADERS[arch], encoding: "utf8" });
  if (status !== 0) return new Map();
  const raw = new Map(
    [...stdout.matchAll(/^#define (__\w+) (\S+)$/gm)].map(([, name = "", value = ""]) => [name, value]),
  );
  const resolve = (value: string): string => (raw.has(value) ? resolve(raw.get(value) ?? "") : value);
  return new Map(
    [...raw].flatMap(([name, value]) =>
      name.startsWith("__NR_") && /^\d+$/.test(resolve(value))
        ? [[name.slice(5), Number(resolve(value))] as const]
        : [],
    ),
  );
}

for (const arch of Object.keys(HEADERS) as Arch[]) {
  const numbers = process.platform === "linux" ? numbersOf(arch) : new Map<string, number>();
  // Only on x64 are its own headers installed; the generic ones come with every kernel's headers.
  const usable = numbers.size > 0;
  if (!usable) console.log(`skipped: the numbers of ${arch}, because its headers are not installed`);
  test.skipIf(!usable)(`the numbers of ${arch} are those of the kernel's headers`, () => {
    const calls = Object.keys(SYSCALLS) as Syscall[];
    const ours = calls.map((call) => [call, numberOf(call, arch)]);
    expect(ours).toEqual(calls.map((call) => [call, numbers.get(call) ?? null]));
  });
}
