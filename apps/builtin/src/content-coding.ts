import { type Duplex, Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw } from "node:zlib";
import { concat, Failure, messageOf } from "@capsem/base";
import { Growth } from "./growth.ts";
import { FETCH_LIMITS } from "./limits.ts";

/** What is asked for, the cheapest for us first. */
export const ACCEPT_ENCODING = "gzip, deflate, br, zstd;q=0.5";

export interface BodyReader {
  /** Of a whole body, in a thread. */
  unzstd(body: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
}

export interface ReadBody {
  readonly bytes: Uint8Array;
  /** As they came. */
  readonly bytesReceived: number;
}

const CODINGS = ["gzip", "x-gzip", "deflate", "br", "zstd"] as const;
type Coding = (typeof CODINGS)[number];
type Bytes = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/**
 * A body whole, without its content codings. It is decompressed as it comes, and ended at the first byte too many.
 * Throws "upstream_failed" and "too_large", and whatever the body throws.
 */
export async function readBody(
  body: AsyncIterable<Uint8Array>,
  contentEncoding: string | null,
  reader: BodyReader,
  signal: AbortSignal,
): Promise<ReadBody> {
  const codings = codingsOf(contentEncoding);
  const growth = new Growth();
  const counted = countReceived(body, growth);
  if (codings.length === 0) {
    const bytes = await collect(counted);
    return { bytes, bytesReceived: growth.received };
  }
  // The last one that was put on comes off first.
  let bytes: Uint8Array | null = null;
  for (const coding of codings.reverse()) {
    const source: Bytes = bytes === null ? counted : [bytes];
    bytes =
      coding === "zstd"
        ? await reader.unzstd(await collect(source), signal)
        : await inflate(source, coding, growth, signal);
  }
  return { bytes: bytes ?? new Uint8Array(), bytesReceived: growth.received };
}

function codingsOf(contentEncoding: string | null): Coding[] {
  const names = (contentEncoding ?? "")
    .split(",")
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== "" && name !== "identity");
  if (names.length > FETCH_LIMITS.codingsMax) {
    throw new Failure("upstream_failed", `Cannot decompress the body: it has ${names.length} codings`);
  }
  return names.map((name) => {
    const coding = CODINGS.find((each) => each === name);
    if (coding !== undefined) return coding;
    throw new Failure("upstream_failed", `Cannot decompress the body: "${name.slice(0, 40)}" is not known`);
  });
}

async function* countReceived(body: AsyncIterable<Uint8Array>, growth: Growth): AsyncGenerator<Uint8Array> {
  for await (const chunk of body) {
    growth.receive(chunk.length);
    yield chunk;
  }
}

async function collect(source: Bytes): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of source) parts.push(part);
  const [only] = parts;
  return parts.length === 1 && only !== undefined ? only : concat(parts);
}

async function inflate(
  source: Bytes,
  coding: Coding,
  growth: Growth,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  const layer = new Growth();
  // A pipeline that is ended by its last part tells of its end, not of its reason.
  let refusal: unknown;
  const take = async (made: AsyncIterable<Uint8Array>) => {
    for await (const part of made) {
      layer.received = growth.received;
      try {
        layer.make(part.length);
      } catch (thrown) {
        refusal = thrown;
        throw thrown;
      }
      parts.push(part);
    }
  };
  const head = await peek(source);
  if (head.first === null) return new Uint8Array();
  try {
    await pipeline(Readable.from(head.all), decoderFor(coding, head.first), take, { signal });
  } catch (thrown) {
    if (refusal !== undefined) throw refusal;
    if (thrown instanceof Failure || signal.aborted) throw thrown;
    const words = `Cannot decompress the body: ${messageOf(thrown)} (${coding})`;
    throw new Failure("upstream_failed", words, { cause: thrown });
  }
  return concat(parts);
}

/** An empty body has no coding, whatever its head says. */
async function peek(source: Bytes) {
  const iterator =
    Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
  let first = await iterator.next();
  while (first.done !== true && first.value.length === 0) first = await iterator.next();
  async function* all(): AsyncGenerator<Uint8Array> {
    try {
      for (let next = first; next.done !== true; next = await iterator.next()) yield next.value;
    } finally {
      await iterator.return?.();
    }
  }
  return { first: first.done === true ? null : first.value, all: all() };
}

const CHUNK = { chunkSize: 64 * 1024 };

function decoderFor(coding: Coding, first: Uint8Array): Duplex {
  switch (coding) {
    case "gzip":
    case "x-gzip":
      return createGunzip(CHUNK);
    case "br":
      return createBrotliDecompress(CHUNK);
    case "deflate":
      return hasZlibHeader(first) ? createInflate(CHUNK) : createInflateRaw(CHUNK);
    case "zstd":
      throw new Failure("upstream_failed", "Cannot decompress the body: zstd is no stream here");
  }
}

/** RFC 9110 means zlib's format by `deflate`; some servers send what is in it alone. */
function hasZlibHeader(first: Uint8Array): boolean {
  const [method = 0, flags = 0] = first;
  return (method & 0x0f) === 8 && ((method << 8) | flags) % 31 === 0;
}
