/** The request of `capsem-helper job`, as PROTOCOL.md section 3 draws it. */

export const jobOp = {
  exec: 1,
  stat: 2,
  list: 3,
  read: 4,
  write: 5,
  mkdir: 6,
  rename: 7,
  remove: 8,
} as const;
export type JobOp = keyof typeof jobOp;

export const jobFlag = {
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
export type JobFlag = keyof typeof jobFlag;

const tag = {
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

/** What follows the length word may be this long. */
export const requestBytesMax = 2_097_152;

export interface JobRequest {
  readonly op: JobOp;
  /** The pid that `workload-init` answered with `ready`. */
  readonly initPid: number;
  readonly uid: number;
  readonly gid: number;
  readonly groups?: readonly number[];
  readonly cgroup?: string;
  readonly cwd?: string;
  readonly argv?: readonly string[];
  /** `KEY=VALUE` each. */
  readonly env?: readonly string[];
  readonly flags?: readonly JobFlag[];
  readonly cols?: number;
  readonly rows?: number;
  readonly path?: string | Uint8Array;
  readonly path2?: string | Uint8Array;
  readonly offset?: bigint | number;
  readonly length?: bigint | number;
  readonly mode?: number;
}

function field(id: number, value: Uint8Array): Uint8Array {
  const bytes = Buffer.allocUnsafe(5 + value.length);
  bytes[0] = id;
  bytes.writeUInt32BE(value.length, 1);
  bytes.set(value, 5);
  return bytes;
}

function text(id: number, value: string | Uint8Array): Uint8Array {
  return field(id, typeof value === "string" ? Buffer.from(value, "utf8") : value);
}

function u32(id: number, value: number): Uint8Array {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32BE(value);
  return field(id, bytes);
}

function u64(id: number, value: bigint | number): Uint8Array {
  const bytes = Buffer.allocUnsafe(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return field(id, bytes);
}

function fieldsOf(request: JobRequest): Uint8Array[] {
  const flags = (request.flags ?? []).reduce((bits, name) => bits | jobFlag[name], 0);
  const fields = [
    field(tag.op, Uint8Array.of(jobOp[request.op])),
    u32(tag.init, request.initPid),
    u32(tag.uid, request.uid),
    u32(tag.gid, request.gid),
  ];
  for (const group of request.groups ?? []) fields.push(u32(tag.group, group));
  if (flags !== 0) fields.push(u32(tag.flags, flags));
  for (const name of ["cgroup", "cwd", "path", "path2"] as const) {
    const value = request[name];
    if (value !== undefined) fields.push(text(tag[name], value));
  }
  for (const name of ["cols", "rows", "mode"] as const) {
    const value = request[name];
    if (value !== undefined) fields.push(u32(tag[name], value));
  }
  for (const name of ["offset", "length"] as const) {
    const value = request[name];
    if (value !== undefined) fields.push(u64(tag[name], value));
  }
  for (const arg of request.argv ?? []) fields.push(text(tag.arg, arg));
  for (const variable of request.env ?? []) fields.push(text(tag.env, variable));
  return fields;
}

/** The whole request with its length word. The caller keeps it within `requestBytesMax`. */
export function encodeJobRequest(request: JobRequest): Uint8Array {
  const body = Buffer.concat(fieldsOf(request));
  const head = Buffer.allocUnsafe(4);
  head.writeUInt32BE(body.length);
  return Buffer.concat([head, body]);
}

/** One entry of `stat` and `list`. Names are bytes: a guest's file names need not be UTF-8. */
export interface JobEntry {
  readonly type: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: bigint;
  readonly mtimeSeconds: bigint;
  readonly mtimeNanos: number;
  /** Of what a link leads to; "" for no link or a dangling one. */
  readonly targetType: string;
  readonly name: Uint8Array;
  readonly linkTarget: Uint8Array;
}

const entryFixedBytes = 34;

/** Decodes entries that fill `bytes` exactly; undefined when they do not. */
export function decodeJobEntries(bytes: Uint8Array): readonly JobEntry[] | undefined {
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const entries: JobEntry[] = [];
  let at = 0;
  while (at < view.length) {
    if (view.length - at < entryFixedBytes + 4) return undefined;
    const nameStart = at + entryFixedBytes + 2;
    const nameEnd = nameStart + view.readUInt16BE(nameStart - 2);
    if (nameEnd + 2 > view.length) return undefined;
    const end = nameEnd + 2 + view.readUInt16BE(nameEnd);
    if (end > view.length) return undefined;
    const target = view.readUInt8(at + 33);
    entries.push({
      type: String.fromCharCode(view.readUInt8(at)),
      mode: view.readUInt32BE(at + 1),
      uid: view.readUInt32BE(at + 5),
      gid: view.readUInt32BE(at + 9),
      size: view.readBigUInt64BE(at + 13),
      mtimeSeconds: view.readBigInt64BE(at + 21),
      mtimeNanos: view.readUInt32BE(at + 29),
      targetType: target === 0 ? "" : String.fromCharCode(target),
      name: Uint8Array.from(view.subarray(nameStart, nameEnd)),
      linkTarget: Uint8Array.from(view.subarray(nameEnd + 2, end)),
    });
    at = end;
  }
  return entries;
}
