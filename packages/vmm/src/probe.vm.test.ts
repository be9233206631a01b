import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { bootProbe } from "./probe-boot.ts";
import { encodeProbeInitramfs } from "./probe-init.ts";
import { testImage } from "./testing/test-guest.ts";

const image = testImage();

test.skipIf(image === undefined)("the probe's own guest boots where guests boot", async () => {
  const folder = mkdtempSync(join(tmpdir(), "capsem-probe-"));
  try {
    const initrdPath = join(folder, "initrd");
    writeFileSync(initrdPath, encodeProbeInitramfs());
    const result = await bootProbe({
      qemuBinary: "/usr/bin/qemu-system-x86_64",
      // What every machine has; the guest is the same under acceleration.
      accelerator: "tcg",
      kernelPath: join(image ?? "", "vmlinuz"),
      initrdPath,
      timeoutMs: 60_000,
      spawn,
    });
    expect(result).toEqual({ kind: "booted" });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
