import { assert } from "@capsem/base";
import { type Addon, builtPath, loadAddon } from "./addon.ts";
import { checkDescriptor, checkSeals, checkSending, checkSize, checkTimeout } from "./checks.ts";
import { type Act, confinement } from "./confinement.ts";
import { guarded } from "./error.ts";
import {
  MEMFD_BYTES_MAX,
  MEMFD_NAME_BYTES_MAX,
  PASS_TIMEOUT_MS_DEFAULT,
  PASSED_PAYLOAD_BYTES_MAX,
} from "./limits.ts";
import { transfers, type Waiting } from "./transfer.ts";

/** The seals of a memfd; add them with `|`. `write` also forbids a writable shared mapping that exists later. */
export const SEAL = { seal: 1, shrink: 2, grow: 4, write: 8, futureWrite: 16 } as const;

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

/** Descriptors that this returns are close-on-exec and belong to the caller. Calls block the thread but for `…Later`. */
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
  /**
   * The same two without blocking the event loop: where the peer has to be waited for, a thread of its own does. The
   * socket, and descriptors that are sent, must stay open until the promise settles.
   */
  sendDescriptorsLater(
    fd: number,
    payload: Uint8Array,
    fds: readonly number[],
    waiting?: Waiting,
  ): Promise<void>;
  receiveDescriptorsLater(fd: number, bytesMax: number, waiting?: Waiting): Promise<Received>;
  /** Who connected or made the pair. The process may be gone and its pid another's: trust `uid` alone. */
  peerCredentials(fd: number): Credentials;
  closeDescriptor(fd: number): void;
  /** Sent when the parent's thread that started us ends; check the parent's pid after the call. 0 takes it back. */
  setParentDeathSignal(signal: number): void;
  /** The version of Landlock that the kernel offers; 0 without one. */
  landlockAbi(): number;
  /** No program that this process starts gains a right by being started. Cannot be taken back. */
  setNoNewPrivileges(): void;
  /** No regular file grows beyond this by a write of ours: EFBIG. Can only be lowered again; children inherit it. */
  limitFileSize(bytesMax: number): void;
  /** Adds a seccomp program to every thread, for good. Kernel records, eight bytes each; see packages/jail. */
  installFilter(program: Uint8Array): void;
  /** Tries what a filter should deny, harmlessly. The errno's name; "EPERM" is the filter's word, "" success. */
  attempt(act: Act): string;
}

let loaded: Native | undefined;

/** The addon of this build, loaded at its first use. */
export function native(): Native {
  loaded ??= loadNative();
  return loaded;
}

export function loadNative(path: string = builtPath("native.node")): Native {
  const addon = loadAddon(path);
  return {
    ...memory(addon),
    ...sockets(addon),
    ...transfers(addon),
    ...processes(addon),
    ...confinement(addon),
  };
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
      checkSending(payload, fds);
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
