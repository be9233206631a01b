import { ByteReader } from "./byte-reader.ts";
import { EXTENSION_BYTES_MAX, TREE_LIMITS, type TreeLimits } from "./limits.ts";
import { BLOCK_BYTES, broken, decodeHeader, type TarHeader, textOfField } from "./tar-header.ts";

export interface TarEntry {
  /** Anything but these three is "other": devices, pipes, hard links. */
  readonly kind: "file" | "directory" | "symlink" | "other";
  /** As it stands in the archive: see `parsePath`. */
  readonly path: string;
  /** Permission bits alone. */
  readonly mode: number;
  readonly size: number;
  readonly mtimeMs: number;
  readonly target: string;
  /** What is not read is skipped when the next entry is asked for. */
  readonly body: AsyncIterable<Buffer>;
}

interface Extension {
  path?: string;
  target?: string;
  size?: number;
  mtimeMs?: number;
}

const PERMISSION_BITS = 0o777;
const KINDS: Readonly<Record<string, TarEntry["kind"]>> = {
  "0": "file",
  "\0": "file",
  "5": "directory",
  "2": "symlink",
};

/**
 * Entries of a tar stream that may be hostile: every length is checked before it is believed, counts and bytes are
 * limited, and only an archive with its end mark ends without an error.
 */
export async function* readTar(
  source: AsyncIterable<Uint8Array>,
  limits: TreeLimits = TREE_LIMITS,
): AsyncGenerator<TarEntry> {
  const reader = new ByteReader(source);
  let entries = 0;
  let bytes = 0;
  let own: Extension = {};
  let shared: Extension = {};
  try {
    for (;;) {
      const block = await reader.exactly(BLOCK_BYTES);
      if (block === null) throw broken("it ends without its end mark");
      const header = decodeHeader(block);
      if (header === null) {
        await drain(reader);
        return;
      }
      entries += 1;
      if (entries > limits.entriesMax) throw broken(`it has over ${limits.entriesMax} entries`);
      if (isExtension(header.type)) {
        const read = await readExtension(reader, header);
        if (header.type === "g") shared = { ...shared, ...read };
        else own = { ...own, ...read };
        continue;
      }
      const { size, ...rest } = merge(header, { ...shared, ...own });
      own = {};
      bytes += size;
      if (bytes > limits.bytesMax) throw broken(`it is over ${limits.bytesMax} bytes`);
      const body = new Body(reader, size);
      yield { ...rest, size, body };
      await body.finish();
    }
  } finally {
    await reader.close();
  }
}

function isExtension(type: string): boolean {
  return type === "x" || type === "g" || type === "L" || type === "K";
}

function merge(header: TarHeader, more: Extension): Omit<TarEntry, "body"> {
  const path = more.path ?? header.path;
  const kind = KINDS[header.type] ?? "other";
  return {
    // An old archive marks a directory by a slash alone.
    kind: kind === "file" && path.endsWith("/") ? "directory" : kind,
    path,
    mode: header.mode & PERMISSION_BITS,
    size: more.size ?? header.size,
    mtimeMs: more.mtimeMs ?? header.mtimeSecs * 1000,
    target: more.target ?? header.target,
  };
}

async function readExtension(reader: ByteReader, header: TarHeader): Promise<Extension> {
  if (header.size > EXTENSION_BYTES_MAX) throw broken("an extended header is too long");
  const body = new Body(reader, header.size);
  const parts: Buffer[] = [];
  for await (const part of body) parts.push(part);
  await body.finish();
  const bytes = Buffer.concat(parts);
  if (header.type === "L") return { path: trimNul(bytes) };
  if (header.type === "K") return { target: trimNul(bytes) };
  return parseRecords(bytes);
}

function trimNul(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return textOfField(end < 0 ? bytes : bytes.subarray(0, end));
}

/** Records of a pax header: "LENGTH KEY=VALUE\n", where LENGTH counts the whole record. */
function parseRecords(bytes: Buffer): Extension {
  const read: Extension = {};
  let at = 0;
  while (at < bytes.length) {
    const space = bytes.indexOf(0x20, at);
    const digits = space < 0 ? "" : bytes.toString("latin1", at, space);
    const length = /^[1-9][0-9]{0,5}$/.test(digits) ? Number(digits) : 0;
    const end = at + length;
    if (length === 0 || end > bytes.length || end <= space + 1 || bytes[end - 1] !== 0x0a)
      throw broken("an extended header is malformed");
    const equals = bytes.indexOf(0x3d, space + 1);
    if (equals < 0 || equals >= end) throw broken("an extended header is malformed");
    setRecord(read, bytes.toString("latin1", space + 1, equals), bytes.subarray(equals + 1, end - 1));
    at = end;
  }
  return read;
}

function setRecord(read: Extension, key: string, value: Buffer): void {
  switch (key) {
    case "path":
      read.path = textOfField(value);
      return;
    case "linkpath":
      read.target = textOfField(value);
      return;
    case "size":
      read.size = parseSize(value.toString("latin1"));
      return;
    case "mtime": {
      const seconds = Number(value.toString("latin1"));
      if (Number.isFinite(seconds)) read.mtimeMs = Math.trunc(seconds * 1000);
      return;
    }
  }
}

function parseSize(text: string): number {
  const size = /^[0-9]{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(size)) throw broken("a size is not a number");
  return size;
}

/** After the end mark only padding follows; it is read so that the sender ends well, up to a limit. */
async function drain(reader: ByteReader): Promise<void> {
  let left = 1024 * 1024;
  while (left > 0) {
    const piece = await reader.upTo(left);
    if (piece === null) return;
    left -= piece.length;
  }
}

class Body implements AsyncIterable<Buffer> {
  readonly #reader: ByteReader;
  #left: number;
  #padding: number;

  constructor(reader: ByteReader, size: number) {
    this.#reader = reader;
    this.#left = size;
    this.#padding = (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    while (this.#left > 0) {
      const piece = await this.#reader.upTo(this.#left);
      if (piece === null) throw broken("it is cut off");
      this.#left -= piece.length;
      yield piece;
    }
  }

  async finish(): Promise<void> {
    for await (const _ of this);
    if (this.#padding === 0) return;
    if ((await this.#reader.exactly(this.#padding)) === null) throw broken("it is cut off");
    this.#padding = 0;
  }
}
