import { assert } from "@capsem/base";
import { type Addon, builtPath, loadAddon } from "./addon.ts";
import { guarded } from "./error.ts";
import {
  MEMFD_BYTES_MAX,
  MEMFD_NAME_BYTES_MAX,
  PASS_TIMEOUT_MS_DEFAULT,
  PASS_TIMEOUT_MS_MAX,
  PASSED_DESCRIPTORS_MAX,
  PASSED_PAYLOAD_BYTES_MAX,
} from "./limits.ts";

/** The seals of a memfd; add them with `|`. `write` also forbids a writable shared mapping that exists later. */
export const SEAL = { seal: 1, shrink: 2, grow: 4, write: 8, futureWrite: 16 } as const;
const SEALS_ALL = 31;

export interface Credentials {
  pid: number;
  uid: number;
  gid: number;
}

/** `payload` is empty when a stream peer has closed its end. The caller owns and closes `fds`. */
export interface Received {
  payload: Uint8Array;
  fds: number[];
}

/** Descriptors that this returns are close-on-exec and belong to the caller. All calls block the thread. */
export interface Native {
  /** A sealable memory file of `sizeBytes` zeros. */
  memfdCreate(name: string, sizeBytes: number): number;
  addSeals(fd: number, seals: number): void;
  getSeals(fd: number): number;
  /**
   * Copies the first `sizeBytes` bytes, skipping the source's holes: the target must be new, that is all zeros.
   * File positions of the target are left alone. Returns the bytes copied.
   */
  copyFileInto(sourceFd: number, targetFd: number, sizeBytes: number): number;
  socketPair(type: "stream" | "seqpacket"): [number, number];
  /** Sends all of `payload` with `fds` on its first byte. The caller still owns `fds` and may close them after. */
  sendDescriptors(fd: number, payload: Uint8Array, fds: readonly number[], timeoutMs?: number): void;
  receiveDescriptors(fd: number, bytesMax: number, timeoutMs?: number): Received;
  /** Who connected or made the pair. The process may be gone and its pid another's: trust `uid` alone. */
  peerCredentials(fd: number): Credentials;
  closeDescriptor(fd: number): void;
  /** Sent when the parent's thread that started us ends; check the parent's pid after the call. 0 takes it back. */
  setParentDeathSignal(signal: number): void;
}

let loaded: Native | undefined;

/** The addon of this build, loaded at its first use. */
export function native(): Native {
  loaded ??= loadNative();
  return loaded;
}

export function loadNative(path: string = builtPath("native.node")): Native {
  const addon = loadAddon(path);
  return { ...memory(addon), ...sockets(addon), ...processes(addon) };
}

function memory(addon: Addon): Pick<Native, "memfdCreate" | "addSeals" | "getSeals" | "copyFileInto"> {
  return {
    memfdCreate(name, sizeBytes) {
      const nameBytes = Buffer.byteLength(name);
      assert(nameBytes > 0 && nameBytes <= MEMFD_NAME_BYTES_MAX && !name.includes("\0"), "bad memfd name");
      checkSize(sizeBytes, MEMFD_BYTES_MAX);
      return guarded(`create memfd "${name}"`, () => addon.memfdCreate(name, sizeBytes));
    },
    addSeals(fd, seals) {
      checkDescriptor(fd);
      checkSeals(seals);
      guarded(`add seals to descriptor ${fd}`, () => addon.addSeals(fd, seals));
    },
    getSeals(fd) {
      checkDescriptor(fd);
      return guarded(`read seals of descriptor ${fd}`, () => addon.getSeals(fd));
    },
    copyFileInto(sourceFd, targetFd, sizeBytes) {
      checkDescriptor(sourceFd);
      checkDescriptor(targetFd);
      checkSize(sizeBytes, MEMFD_BYTES_MAX);
      return guarded(`copy descriptor ${sourceFd} into ${targetFd}`, () =>
        addon.copyFileInto(sourceFd, targetFd, sizeBytes),
      );
    },
  };
}

function sockets(
  addon: Addon,
): Pick<
  Native,
  "socketPair" | "sendDescriptors" | "receiveDescriptors" | "peerCredentials" | "closeDescriptor"
> {
  return {
    socketPair(type) {
      assert(type === "stream" || type === "seqpacket", "bad socket type");
      return guarded("make a socket pair", () => addon.socketPair(type === "seqpacket" ? 1 : 0));
    },
    sendDescriptors(fd, payload, fds, timeoutMs = PASS_TIMEOUT_MS_DEFAULT) {
      checkDescriptor(fd);
      // Descriptors ride on bytes: with none, the kernel would drop them without a word.
      assert(payload instanceof Uint8Array && payload.length > 0, "descriptors need a payload");
      assert(payload.length <= PASSED_PAYLOAD_BYTES_MAX, "the payload is too long");
      assert(fds.length <= PASSED_DESCRIPTORS_MAX, "too many descriptors");
      for (const passed of fds) checkDescriptor(passed);
      checkTimeout(timeoutMs);
      guarded(`send descriptors over ${fd}`, () => addon.sendDescriptors(fd, payload, fds, timeoutMs));
    },
    receiveDescriptors(fd, bytesMax, timeoutMs = PASS_TIMEOUT_MS_DEFAULT) {
      checkDescriptor(fd);
      checkSize(bytesMax, PASSED_PAYLOAD_BYTES_MAX);
      assert(bytesMax > 0, "descriptors need a payload");
      checkTimeout(timeoutMs);
      return guarded(`receive descriptors from ${fd}`, () =>
        addon.receiveDescriptors(fd, bytesMax, timeoutMs),
      );
    },
    peerCredentials(fd) {
      checkDescriptor(fd);
      return guarded(`read the peer of descriptor ${fd}`, () => addon.peerCredentials(fd));
    },
    closeDescriptor(fd) {
      checkDescriptor(fd);
      assert(fd > 2, "standard streams stay open: their numbers would be given to other files");
      guarded(`close descriptor ${fd}`, () => addon.closeDescriptor(fd));
    },
  };
}

function processes(addon: Addon): Pick<Native, "setParentDeathSignal"> {
  return {
    setParentDeathSignal(signal) {
      assert(Number.isInteger(signal) && signal >= 0 && signal <= 64, `bad signal ${signal}`);
      guarded("set the parent-death signal", () => addon.setParentDeathSignal(signal));
    },
  };
}

function checkDescriptor(fd: number): void {
  assert(Number.isInteger(fd) && fd >= 0 && fd <= 0x7fffffff, `bad descriptor ${fd}`);
}

function checkSize(sizeBytes: number, sizeBytesMax: number): void {
  assert(Number.isInteger(sizeBytes) && sizeBytes >= 0 && sizeBytes <= sizeBytesMax, `bad size ${sizeBytes}`);
}

function checkSeals(seals: number): void {
  assert(Number.isInteger(seals) && seals >= 0 && (seals & ~SEALS_ALL) === 0, `bad seals ${seals}`);
}

function checkTimeout(timeoutMs: number): void {
  assert(
    Number.isInteger(timeoutMs) && timeoutMs >= 0 && timeoutMs <= PASS_TIMEOUT_MS_MAX,
    `bad timeout ${timeoutMs}`,
  );
}
