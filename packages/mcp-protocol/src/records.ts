/**
 * What goes over the stream of a `server.request`:
 *
 *  0      1        5
 * +------+--------+------------+
 * | type | length | UTF-8 JSON |   length big-endian, 1..16,777,216
 * +------+--------+------------+
 *   u8     u32
 */
import { isUtf8 } from "node:buffer";
import { Failure, readU32, utf8, writeU32 } from "@capsem/base";
import { MCP_LIMITS } from "./limits.ts";

export const RECORD_TYPES = {
  /** A notification in the course of the request, of the server, or of the client about what it is asked: a whole message. */
  notification: 1,
  /** A request of the server to the client: a whole message. */
  request: 2,
  /** The `result` of the answer, as the server wrote it. Nothing follows. */
  result: 3,
  /** The `error` of the answer, as the server wrote it. Nothing follows. */
  error: 4,
  /** Of the client, to a `request`: a whole message with that one's id. */
  response: 5,
} as const;
export type RecordKind = keyof typeof RECORD_TYPES;

export interface McpRecord {
  readonly kind: RecordKind;
  readonly text: string;
  /** The same as it came, where it is large: to pass it on without making it anew. */
  readonly bytes?: Uint8Array;
}

/** From this size on a record keeps its bytes beside its text. */
const KEPT_BYTES_MIN = 16_384;

/** As much of a stream as records need. */
export interface RecordStream {
  read(): Promise<Uint8Array | null>;
  write(chunk: Uint8Array): Promise<void>;
}

const HEADER_BYTES = 5;
const KINDS: readonly (RecordKind | undefined)[] = [
  undefined,
  "notification",
  "request",
  "result",
  "error",
  "response",
];
const utf8Text = new TextDecoder("utf-8", { ignoreBOM: true });

/** Throws Failure("too_large"). */
export function encodeRecord(kind: RecordKind, text: string): Uint8Array {
  const body = utf8(text);
  if (body.length > MCP_LIMITS.recordBytesMax) throw tooLarge(body.length);
  const record = new Uint8Array(HEADER_BYTES + body.length);
  record[0] = RECORD_TYPES[kind];
  writeU32(record, 1, body.length);
  record.set(body, HEADER_BYTES);
  return record;
}

/** Resolves when the stream has taken it, which is how a slow reader is waited for. */
export async function writeRecord(
  stream: Pick<RecordStream, "write">,
  kind: RecordKind,
  text: string,
): Promise<void> {
  await stream.write(encodeRecord(kind, text));
}

/**
 * Cuts chunks into records, whatever their split. Throws Failure("bad_message" | "too_large" | "truncated"), and is then
 * of no more use. Room is made for what came, not for what was announced.
 */
export class RecordDecoder {
  readonly #accepts: readonly RecordKind[];
  #chunks: Uint8Array[] = [];
  #byteLength = 0;
  /** Bytes that the record under way needs, with its header; until that is known, the header alone. */
  #needed = HEADER_BYTES;
  #hasHeader = false;

  /** `accepts`: what the other side may send. */
  constructor(accepts: readonly RecordKind[]) {
    this.#accepts = accepts;
  }

  push(chunk: Uint8Array): McpRecord[] {
    const records: McpRecord[] = [];
    this.#chunks.push(chunk);
    this.#byteLength += chunk.length;
    while (this.#byteLength >= this.#needed) {
      const bytes = this.#joined();
      if (!this.#hasHeader) {
        this.#readHeader(bytes);
        continue;
      }
      records.push(this.#record(bytes.subarray(0, this.#needed)));
      this.#chunks = this.#needed === bytes.length ? [] : [bytes.subarray(this.#needed)];
      this.#byteLength -= this.#needed;
      this.#needed = HEADER_BYTES;
      this.#hasHeader = false;
    }
    return records;
  }

  /** The stream ended. */
  end(): void {
    if (this.#byteLength === 0) return;
    throw new Failure("truncated", "Cannot read record: the stream ended within it");
  }

  /** What is held as one array: copied once a header and once a record, never once a chunk. */
  #joined(): Uint8Array {
    const [first] = this.#chunks;
    if (this.#chunks.length === 1 && first !== undefined) return first;
    const whole = new Uint8Array(this.#byteLength);
    let at = 0;
    for (const chunk of this.#chunks) {
      whole.set(chunk, at);
      at += chunk.length;
    }
    this.#chunks = [whole];
    return whole;
  }

  #readHeader(bytes: Uint8Array): void {
    const kind = KINDS[bytes[0] ?? 0];
    if (kind === undefined || !this.#accepts.includes(kind)) {
      throw new Failure("bad_message", `Cannot read record: type ${bytes[0]} is not taken here`);
    }
    const length = readU32(bytes, 1);
    if (length === 0) throw new Failure("bad_message", "Cannot read record: it is empty");
    if (length > MCP_LIMITS.recordBytesMax) throw tooLarge(length);
    this.#needed = HEADER_BYTES + length;
    this.#hasHeader = true;
  }

  #record(bytes: Uint8Array): McpRecord {
    const kind = KINDS[bytes[0] ?? 0] as RecordKind;
    const body = bytes.subarray(HEADER_BYTES);
    if (!isUtf8(body)) throw new Failure("bad_message", "Cannot read record: it is not UTF-8");
    return body.length < KEPT_BYTES_MIN ? { kind, text: utf8Text.decode(body) } : new LargeRecord(kind, body);
  }
}

/** Its text is made when somebody asks for it, and once. */
class LargeRecord implements McpRecord {
  readonly kind: RecordKind;
  readonly bytes: Uint8Array;
  #text: string | undefined;

  constructor(kind: RecordKind, bytes: Uint8Array) {
    this.kind = kind;
    this.bytes = bytes;
  }

  get text(): string {
    this.#text ??= utf8Text.decode(this.bytes);
    return this.#text;
  }
}

/** Every record until the peer's end. The stream stays the caller's to end, and to reset when this throws. */
export async function* readRecords(
  stream: Pick<RecordStream, "read">,
  accepts: readonly RecordKind[],
): AsyncGenerator<McpRecord, void, undefined> {
  const decoder = new RecordDecoder(accepts);
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
    yield* decoder.push(chunk);
  }
  decoder.end();
}

function tooLarge(bytes: number): Failure<"too_large"> {
  return new Failure(
    "too_large",
    `Cannot carry record: ${bytes} bytes, more than ${MCP_LIMITS.recordBytesMax}`,
  );
}
