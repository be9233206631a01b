import { assert, Failure, utf8 } from "@capsem/base";

/**
 * What the agent and `capsem-helper job` say to each other (guest-image/helper/PROTOCOL.md, section 3).
 * The helper's report is ours, but it reports on a hostile workload: every length is checked.
 */
export const HELPER_OPS = {
  exec: 1,
  stat: 2,
  list: 3,
  read: 4,
  write: 5,
  mkdir: 6,
  rename: 7,
  remove: 8,
} as const;

export const HELPER_FLAGS = {
  terminal: 1,
  parents: 2,
  recursive: 4,
  follow: 8,
  inPlace: 16,
  create: 32,
  truncate: 64,
  exclusive: 128,
  sync: 256,
  handOver: 512,
} as const;

export const HELPER_LIMITS = {
  requestBytesMax: 2_097_152,
  lineBytesMax: 4_096,
  argsMax: 16_384,
  envMax: 4_096,
  groupsMax: 64,
  terminalSizeMax: 1_000,
  /** A helper holds a handful. */
  descriptorMax: 1_023,
  listPageEntriesMax: 4_096,
  /** One page of a listing: 4,096 entries with the longest names. Links' targets are mostly short. */
  dataBytesMax: 16_777_216,
} as const;

export interface HelperIdentity {
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
}

export interface HelperRequest extends HelperIdentity {
  readonly op: keyof typeof HELPER_OPS;
  /** Process id of the workload's PID 1, as the agent sees it. */
  readonly init: number;
  readonly cgroup?: string;
  readonly args?: readonly string[];
  readonly env?: readonly string[];
  readonly cwd?: string;
  readonly flags?: number;
  readonly cols?: number;
  readonly rows?: number;
  readonly path?: string;
  readonly path2?: string;
  readonly offset?: number;
  readonly length?: number;
  readonly mode?: number;
}

const TAGS = {
  op: 1,
  init: 2,
  cgroup: 3,
  arg: 4,
  env: 5,
  cwd: 6,
  uid: 7,
  gid: 8,
  group: 9,
  flags: 10,
  cols: 11,
  rows: 12,
  path: 13,
  path2: 14,
  offset: 15,
  length: 16,
  mode: 17,
} as const;

/** Throws Failure("invalid_input" | "too_large") for what the helper would refuse. */
export function encodeHelperRequest(request: HelperRequest): Uint8Array {
  const fields: Uint8Array[] = [];
  const put = (tag: number, value: Uint8Array) => fields.push(field(tag, value));
  const text = (tag: number, value: string | undefined) => value !== undefined && put(tag, plainText(value));
  const u32 = (tag: number, value: number | undefined) => value !== undefined && put(tag, integer(value, 4));
  const u64 = (tag: number, value: number | undefined) => value !== undefined && put(tag, integer(value, 8));

  put(TAGS.op, Uint8Array.of(HELPER_OPS[request.op]));
  u32(TAGS.init, request.init);
  text(TAGS.cgroup, request.cgroup);
  bound(request.args, HELPER_LIMITS.argsMax, "arguments");
  for (const arg of request.args ?? []) text(TAGS.arg, arg);
  bound(request.env, HELPER_LIMITS.envMax, "environment entries");
  for (const entry of request.env ?? []) text(TAGS.env, entry);
  text(TAGS.cwd, request.cwd);
  u32(TAGS.uid, request.uid);
  u32(TAGS.gid, request.gid);
  for (const group of request.groups) u32(TAGS.group, group);
  u32(TAGS.flags, request.flags);
  u32(TAGS.cols, request.cols);
  u32(TAGS.rows, request.rows);
  text(TAGS.path, request.path);
  text(TAGS.path2, request.path2);
  u64(TAGS.offset, request.offset);
  u64(TAGS.length, request.length);
  u32(TAGS.mode, request.mode);
  return join(fields);
}

function bound(list: readonly string[] | undefined, most: number, what: string): void {
  if (list !== undefined && list.length > most) {
    throw new Failure("too_large", `Cannot start: ${list.length} ${what}, more than ${most}`);
  }
}

function plainText(value: string): Uint8Array {
  if (value.includes("\0")) throw new Failure("invalid_input", "Cannot use text: it holds a NUL");
  return utf8(value);
}

function integer(value: number, width: 4 | 8): Uint8Array {
  assert(Number.isSafeInteger(value) && value >= 0, `no unsigned integer: ${value}`);
  const bytes = Buffer.alloc(width);
  if (width === 4) bytes.writeUInt32BE(value);
  else bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}

function field(tag: number, value: Uint8Array): Uint8Array {
  const bytes = Buffer.allocUnsafe(5 + value.length);
  bytes.writeUInt8(tag, 0);
  bytes.writeUInt32BE(value.length, 1);
  bytes.set(value, 5);
  return bytes;
}

function join(fields: readonly Uint8Array[]): Uint8Array {
  const length = fields.reduce((sum, part) => sum + part.length, 0);
  if (length > HELPER_LIMITS.requestBytesMax) {
    throw new Failure("too_large", `Cannot start: arguments and environment have ${length} bytes together`);
  }
  const head = Buffer.allocUnsafe(4);
  head.writeUInt32BE(length);
  return Buffer.concat([head, ...fields]);
}

export type HelperReport =
  | { readonly kind: "started"; readonly pid: number }
  | { readonly kind: "exit"; readonly code: number; readonly held: boolean }
  | { readonly kind: "signal"; readonly signal: number; readonly held: boolean }
  | { readonly kind: "data"; readonly bytes: number }
  | { readonly kind: "size"; readonly bytes: number }
  | { readonly kind: "file"; readonly bytes: number; readonly fd: number }
  | { readonly kind: "ready" }
  | { readonly kind: "ok"; readonly words: string }
  | HelperError;

export interface HelperError {
  readonly kind: "error";
  readonly step: string;
  readonly errno: string;
  readonly text: string;
}

/** One line without its newline, or undefined when it is none of the protocol's. */
export function parseReport(line: string): HelperReport | undefined {
  const [word, ...rest] = line.split(" ");
  switch (word) {
    case "started":
      return ofCount(rest, 4_194_304, (pid) => ({ kind: "started", pid }));
    case "exit":
      return ofEnd(rest, 255, (code, held) => ({ kind: "exit", code, held }));
    case "signal":
      return ofEnd(rest, 64, (signal, held) => ({ kind: "signal", signal, held }));
    case "data":
      return ofCount(rest, HELPER_LIMITS.dataBytesMax, (bytes) => ({ kind: "data", bytes }));
    case "size":
      return ofCount(rest, Number.MAX_SAFE_INTEGER, (bytes) => ({ kind: "size", bytes }));
    case "file":
      return parseFile(rest);
    case "ready":
      return rest.length === 0 ? { kind: "ready" } : undefined;
    case "ok":
      return { kind: "ok", words: rest.join(" ") };
    case "error":
      return parseError(rest);
    default:
      return undefined;
  }
}

function parseError(words: readonly string[]): HelperError | undefined {
  const [step, errno, ...text] = words;
  if (step === undefined || errno === undefined || !/^E[A-Z0-9]+$|^[0-9]+$/.test(errno)) return undefined;
  return { kind: "error", step, errno, text: text.join(" ") };
}

function parseFile(words: readonly string[]): HelperReport | undefined {
  const [bytes, fd] = words.map(parseCount);
  if (words.length !== 2 || bytes === undefined || fd === undefined || fd > HELPER_LIMITS.descriptorMax)
    return undefined;
  return { kind: "file", bytes, fd };
}

function ofCount<T>(words: readonly string[], most: number, make: (count: number) => T): T | undefined {
  const count = words.length === 1 ? parseCount(words[0]) : undefined;
  return count !== undefined && count <= most ? make(count) : undefined;
}

function ofEnd<T>(
  words: readonly string[],
  most: number,
  make: (value: number, held: boolean) => T,
): T | undefined {
  const [first, ...marks] = words;
  const value = parseCount(first);
  if (value === undefined || value > most) return undefined;
  if (marks.some((mark) => mark !== "core" && mark !== "held")) return undefined;
  return make(value, marks.includes("held"));
}

export function parseCount(text: string | undefined): number | undefined {
  if (text === undefined || !/^[0-9]{1,16}$/.test(text)) return undefined;
  const count = Number(text);
  return Number.isSafeInteger(count) ? count : undefined;
}
