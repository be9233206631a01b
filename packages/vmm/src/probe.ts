import type { spawn } from "node:child_process";
import { open, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { isFileError } from "./file-error.ts";
import { MANIFEST_BYTES_MAX } from "./limits.ts";
import { bootProbe } from "./probe-boot.ts";
import { encodeProbeInitramfs } from "./probe-init.ts";
import { isObject } from "./qmp-line.ts";

const PROBE_TIMEOUT_MS = 5_000;

export interface ProbeOptions {
  qemuBinary: string;
  qemuVersion: string;
  kernelPath: string;
  /** A guest that prints `PROBE_TOKEN`; a tiny one is made when none is given. */
  initrdPath?: string;
  cacheFile: string;
  timeoutMs?: number;
  spawn: typeof spawn;
  /** The host's kernel release, as `os.release()` gives it. */
  hostRelease: string;
  devices: { kvm: string };
}

export interface ProbedAccelerator {
  name: "kvm" | "tcg";
  /** Why, for `status` and `doctor`. */
  reason: string;
}

/**
 * Finds out by booting a guest whether the host's acceleration works: there are hosts whose device exists and
 * on which no guest boots. The result of a boot is kept until QEMU, the host's kernel or the device changes.
 */
export async function probeAccelerator(options: ProbeOptions): Promise<ProbedAccelerator> {
  const device = await identify(options.devices.kvm);
  if (device.kind === "unusable") return { name: "tcg", reason: device.reason };
  const key = JSON.stringify([options.qemuVersion, options.hostRelease, device.identity]);
  const known = await readCache(options.cacheFile, key);
  if (known !== null) return known;
  const probed = await probe(options);
  await writeCache(options.cacheFile, key, probed);
  return probed;
}

async function probe(options: ProbeOptions): Promise<ProbedAccelerator> {
  const made = options.initrdPath === undefined ? `${options.cacheFile}.initrd` : null;
  if (made !== null) await writeFile(made, encodeProbeInitramfs(), { mode: 0o600 });
  try {
    const result = await bootProbe({
      qemuBinary: options.qemuBinary,
      accelerator: "kvm",
      kernelPath: options.kernelPath,
      initrdPath: options.initrdPath ?? `${options.cacheFile}.initrd`,
      timeoutMs: options.timeoutMs ?? PROBE_TIMEOUT_MS,
      spawn: options.spawn,
    });
    return result.kind === "booted"
      ? { name: "kvm", reason: `a guest booted with ${options.devices.kvm}` }
      : { name: "tcg", reason: `${options.devices.kvm} is there, but ${result.reason}` };
  } finally {
    if (made !== null) await rm(made, { force: true });
  }
}

type Device = { kind: "usable"; identity: string } | { kind: "unusable"; reason: string };

async function identify(path: string): Promise<Device> {
  try {
    const handle = await open(path, "r+");
    await handle.close();
    const { rdev, ino, dev, mode, uid, gid } = await stat(path);
    return { kind: "usable", identity: [dev, ino, rdev, mode, uid, gid].join(":") };
  } catch (thrown) {
    if (!isFileError(thrown)) throw thrown;
    return { kind: "unusable", reason: unusable(path, thrown.code) };
  }
}

function unusable(path: string, code: string | undefined): string {
  if (code === "ENOENT") return `this host has no ${path}`;
  if (code === "EACCES" || code === "EPERM") {
    return `${path} may not be opened by this user; add the user to the device's group, often "kvm"`;
  }
  return `${path} cannot be opened (${code ?? "unknown error"})`;
}

/** Anything that is not a result for this key is no result: the probe runs again. */
async function readCache(path: string, key: string): Promise<ProbedAccelerator | null> {
  try {
    if ((await stat(path)).size > MANIFEST_BYTES_MAX) return null;
    const value: unknown = JSON.parse(await readFile(path, "utf8"));
    if (!isObject(value) || value.version !== 1 || value.key !== key) return null;
    const { name, reason } = value;
    if ((name !== "kvm" && name !== "tcg") || typeof reason !== "string") return null;
    return { name, reason };
  } catch (thrown) {
    if (thrown instanceof SyntaxError || isFileError(thrown)) return null;
    throw thrown;
  }
}

async function writeCache(path: string, key: string, result: ProbedAccelerator): Promise<void> {
  const draft = `${path}.draft`;
  await writeFile(draft, `${JSON.stringify({ version: 1, key, ...result })}\n`, { mode: 0o600 });
  await rename(draft, path);
}
