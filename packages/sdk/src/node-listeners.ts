import { closeSync, openSync, readSync } from "node:fs";
import { endianness } from "node:os";
import { codeOf } from "./node-error.ts";

/** The kernel's own lists of sockets, of IPv4 and IPv6, those that listen first. Nobody can put another's name there. */
const LISTS = ["/proc/self/net/tcp", "/proc/self/net/tcp6"] as const;
const LISTENING = "0A";
/** Columns of a row, split at its spaces. */
const LOCAL = 1;
const STATE = 3;
const UID = 7;
const INODE = 9;
/**
 * About a row. The kernel makes no more of a list than is asked for, and the part after the listeners, all connections of
 * the machine, takes it milliseconds.
 */
const CHUNK_BYTES = 192;

export interface ListeningSocket {
  readonly uid: number;
  /** Of this socket and of no other one that was or will be. */
  readonly inode: string;
}

/** Who a connection to the address goes to, null for nobody; "unknown" where the system has no such lists. */
export type Listener = ListeningSocket | null | "unknown";

/** `address` is of the loopback. No two sockets of different users can listen at once where this would find both. */
export function findListener(address: string, port: number): Listener {
  const places = placesOf(address, port);
  let rows = 0;
  for (const path of LISTS) {
    for (const row of rowsOf(path)) {
      rows += 1;
      if (row[STATE] !== LISTENING) break;
      const listener = listenerIn(row, places);
      if (listener !== null) return listener;
    }
  }
  // A list that is there and empty tells nothing: whoever asks has a connection, which would be in it.
  return rows === 0 ? "unknown" : null;
}

export function listenerIn(row: readonly string[], places: readonly string[]): ListeningSocket | null {
  const { [LOCAL]: local, [STATE]: state, [UID]: uid, [INODE]: inode } = row;
  if (state !== LISTENING || local === undefined || !places.includes(local)) return null;
  return uid === undefined || inode === undefined ? null : { uid: Number(uid), inode };
}

/** Rows as they come; none where the list is not there, or is not for us to read. */
function* rowsOf(path: string): Generator<string[]> {
  const fd = openList(path);
  if (fd === null) return;
  try {
    const chunk = Buffer.alloc(CHUNK_BYTES);
    let text = "";
    let isHead = true;
    for (;;) {
      const bytes = readSync(fd, chunk, 0, CHUNK_BYTES, null);
      if (bytes === 0) return;
      const lines = (text + chunk.toString("latin1", 0, bytes)).split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) {
        if (!isHead) yield cellsOf(line);
        isHead = false;
      }
    }
  } finally {
    closeSync(fd);
  }
}

function openList(path: string): number | null {
  try {
    return openSync(path, "r");
  } catch (thrown) {
    if (["ENOENT", "EACCES", "EPERM"].includes(codeOf(thrown) ?? "")) return null;
    throw thrown;
  }
}

export function cellsOf(line: string): string[] {
  return line.trim().split(/ +/);
}

/** The address itself and all addresses, as the lists write them, also where an IPv6 socket takes IPv4 connections. */
export function placesOf(address: string, port: number): string[] {
  const end = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const isIpv6 = address.includes(":");
  const ipv4 = (isIpv6 ? ["0.0.0.0"] : [address, "0.0.0.0"]).map((each) => each.split(".").map(Number));
  const zeros = (count: number) => Array.from({ length: count }, () => 0);
  const mapped = ipv4.map((bytes) => [...zeros(10), 0xff, 0xff, ...bytes]);
  const whole = [...(isIpv6 ? [[...zeros(15), 1]] : [...ipv4, ...mapped]), zeros(16)];
  return whole.map((bytes) => `${hexOf(bytes)}${end}`);
}

/** Four bytes each are one number of this machine. */
function hexOf(bytes: readonly number[]): string {
  const words = Array.from({ length: bytes.length / 4 }, (_, at) => bytes.slice(4 * at, 4 * at + 4));
  const ordered = endianness() === "LE" ? words.map((word) => word.reverse()) : words;
  return ordered
    .flat()
    .map((byte) => byte.toString(16).toUpperCase().padStart(2, "0"))
    .join("");
}
