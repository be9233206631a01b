import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type ProbeOptions, probeAccelerator } from "./probe.ts";
import { PROBE_TOKEN } from "./probe-init.ts";

let folder: string;
let device: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "capsem-probe-"));
  device = join(folder, "kvm");
  writeFileSync(device, "");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** A stand-in for QEMU that counts its runs and then does what `script` says. */
function options(script: string, rest: Partial<ProbeOptions> = {}): ProbeOptions {
  const qemuBinary = join(folder, "qemu");
  writeFileSync(qemuBinary, `#!/bin/sh\necho "$@" >>${folder}/runs\n${script}\n`, { mode: 0o755 });
  return {
    qemuBinary,
    qemuVersion: "7.2.22",
    kernelPath: "/kernel",
    cacheFile: join(folder, "probe.json"),
    timeoutMs: 10_000,
    spawn,
    hostRelease: "6.1",
    devices: { kvm: device },
    ...rest,
  };
}

function runs(): number {
  const path = join(folder, "runs");
  return existsSync(path) ? readFileSync(path, "utf8").trim().split("\n").length : 0;
}

test("a guest that prints the token proves the acceleration, and the hypervisor is ended", async () => {
  const probed = await probeAccelerator(options(`echo boot; echo ${PROBE_TOKEN}; exec sleep 600`));
  expect(probed).toEqual({ name: "kvm", reason: `a guest booted with ${device}` });
  expect(readFileSync(join(folder, "runs"), "utf8")).toContain("-accel kvm -cpu host");
  expect(readdirSync(folder).sort()).toEqual(["kvm", "probe.json", "qemu", "runs"]);
});

test("a host without the device is emulated at once", async () => {
  rmSync(device);
  const probed = await probeAccelerator(options(`echo ${PROBE_TOKEN}`));
  expect(probed).toEqual({ name: "tcg", reason: `this host has no ${device}` });
  expect(runs()).toBe(0);
});

test("a guest that hangs is given up at the time limit", async () => {
  const probed = await probeAccelerator(options("exec sleep 600", { timeoutMs: 50 }));
  expect(probed).toEqual({
    name: "tcg",
    reason: `${device} is there, but no guest program ran within 50 ms`,
  });
});

test("a hypervisor that ends says why", async () => {
  const probed = await probeAccelerator(options("echo 'Could not access KVM' >&2; echo more >&2; exit 1"));
  expect(probed.name).toBe("tcg");
  expect(probed.reason).toBe(
    `${device} is there, but the hypervisor ended with 1 before a guest program ran ("Could not access KVM")`,
  );
});

test("a hypervisor that is killed says by what", async () => {
  const probed = await probeAccelerator(options("kill -SYS $$"));
  expect(probed.reason).toContain("the hypervisor ended with SIGSYS");
});

test("a hypervisor that cannot be run is not the device's fault", async () => {
  const probed = await probeAccelerator({ ...options(""), qemuBinary: join(folder, "absent") });
  expect(probed.name).toBe("tcg");
  expect(probed.reason).toContain("the hypervisor cannot be run");
});

test("a flood of output without the token is no boot and takes no memory", async () => {
  const flood = "i=0; while [ $i -lt 200 ]; do printf '%04096d' 0; i=$((i+1)); done; exit 3";
  expect((await probeAccelerator(options(flood))).reason).toContain("ended with 3");
});

test("a result is kept until QEMU, the host's kernel or the device changes", async () => {
  const script = `echo ${PROBE_TOKEN}`;
  await probeAccelerator(options(script));
  expect((await probeAccelerator(options("exit 1"))).name).toBe("kvm");
  expect(runs()).toBe(1);
  await probeAccelerator(options(script, { qemuVersion: "8.0.0" }));
  await probeAccelerator(options(script, { qemuVersion: "8.0.0", hostRelease: "6.2" }));
  expect(runs()).toBe(3);
  writeFileSync(`${device}-other`, "");
  await probeAccelerator(
    options(script, { qemuVersion: "8.0.0", hostRelease: "6.2", devices: { kvm: `${device}-other` } }),
  );
  expect(runs()).toBe(4);
});

test("a failure is kept too", async () => {
  await probeAccelerator(options("exit 1"));
  expect((await probeAccelerator(options(`echo ${PROBE_TOKEN}`))).name).toBe("tcg");
  expect(runs()).toBe(1);
});

test.each(["", "{", "[]", "null", '{"version":1}', " ".repeat(1e6)])(
  "a kept result of the form %.20j is none",
  async (text) => {
    writeFileSync(join(folder, "probe.json"), text);
    expect((await probeAccelerator(options(`echo ${PROBE_TOKEN}`))).name).toBe("kvm");
    expect(runs()).toBe(1);
  },
);
