/** The only importer of the MessagePack library: plain values, no extension types, bounded before decoding. */

import { Bug, concat, Failure, messageOf, utf8 } from "@capsem/base";
import { Decoder, Encoder } from "@msgpack/msgpack";
import { putU32 } from "./frame.ts";
import { WIRE_LIMITS } from "./limits.ts";
import { checkMessagePack } from "./msgpack-scan.ts";
import { plainBytes } from "./plain-bytes.ts";

const noExtensions = {
  /** Called with every value that is an object: anything but a plain one would lose its meaning silently. */
  tryToEncode(value: unknown): null {
    if (isPlain(value)) return null;
    throw new Bug(`cannot encode a ${Object.prototype.toString.call(value)} in a message`);
  },
  decode(): never {
    throw new Failure("bad_message", "Cannot decode message: it has an extension type");
  },
};

const ENCODE_OPTIONS = {
  extensionCodec: noExtensions,
  ignoreUndefined: true,
  maxDepth: WIRE_LIMITS.messageDepthMax,
};
const DECODE_OPTIONS = { extensionCodec: noExtensions };

/** A message up to this size is copied out of the encoder, which is used again: most are a few hundred bytes. */
const COPIED_BYTES_MAX = 4_096;

/** Kept: a new one for each message costs more than most messages. Both allow to be entered again. */
let encoder = new Encoder(ENCODE_OPTIONS);
let decoder = new Decoder(DECODE_OPTIONS);

/** Fields that are undefined are left out. Throws Bug for what MessagePack cannot hold. */
export function encodeMessagePack(value: unknown): Uint8Array {
  try {
    const bytes = encoder.encodeSharedRef(value);
    if (bytes.length <= COPIED_BYTES_MAX) return bytes.slice();
    // Its buffer has grown, and goes with the message.
    encoder = new Encoder(ENCODE_OPTIONS);
    return bytes;
  } catch (thrown) {
    encoder = new Encoder(ENCODE_OPTIONS);
    if (thrown instanceof Bug) throw thrown;
    throw new Bug(`cannot encode a message: ${messageOf(thrown)}`, { cause: thrown });
  }
}

/** From this size on bytes and texts are parts of their own: putting them in line costs a copy, and room for it. */
const APART_BYTES_MIN = 16_384;
/** How deep such a part is looked for: params within a request, a body within its list. */
const APART_DEPTH_MAX = 2;

/**
 * The same as parts to be sent one behind the other. Large bytes are given on as they are: they stay the caller's, and
 * unchanged until they have left.
 */
export function encodeMessagePackParts(value: unknown): readonly Uint8Array[] {
  if (!isLarge(value) && !holdsLarge(value, 0)) return [encodeMessagePack(value)];
  const parts = new Parts();
  parts.add(value, 0);
  return parts.end();
}

class Parts {
  readonly #parts: Uint8Array[] = [];
  /** What is small goes together. */
  #small: Uint8Array[] = [];

  add(value: unknown, depth: number): void {
    if (isLarge(value)) this.#addLarge(value);
    else if (!holdsLarge(value, depth)) this.#small.push(encodeMessagePack(value));
    else if (Array.isArray(value)) {
      this.#small.push(headOf(0xdd, value.length));
      for (const item of value) this.add(item, depth + 1);
    } else {
      const members = Object.entries(value).filter(([, member]) => member !== undefined);
      this.#small.push(headOf(0xdf, members.length));
      for (const [name, member] of members) {
        this.#small.push(encodeMessagePack(name));
        this.add(member, depth + 1);
      }
    }
  }

  end(): readonly Uint8Array[] {
    if (this.#small.length > 0) this.#parts.push(concat(this.#small));
    return this.#parts;
  }

  #addLarge(value: string | Uint8Array): void {
    const isText = typeof value === "string";
    const bytes = isText ? utf8(value) : value;
    this.#parts.push(concat([...this.#small, headOf(isText ? 0xdb : 0xc6, bytes.length)]), bytes);
    this.#small = [];
  }
}

/** Whether a plain object or an array has a part that is sent apart. */
function holdsLarge(value: unknown, depth: number): value is object {
  if (typeof value !== "object" || value === null || depth > APART_DEPTH_MAX || !isPlain(value)) return false;
  if (value instanceof Uint8Array) return false;
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name];
    if (isLarge(member) || holdsLarge(member, depth + 1)) return true;
  }
  return false;
}

function isLarge(value: unknown): value is string | Uint8Array {
  return (typeof value === "string" || value instanceof Uint8Array) && value.length >= APART_BYTES_MIN;
}

/** A first byte, and a length or a count of 32 bits. */
function headOf(first: number, count: number): Uint8Array {
  const head = new Uint8Array(5);
  head[0] = first;
  putU32(head, 1, count);
  return head;
}

/**
 * Maps become plain objects and `bin` becomes a Uint8Array, a view into `bytes`. Throws
 * Failure("bad_message") for anything but one whole value; the caller has bounded `bytes` already.
 */
export function decodeMessagePack(bytes: Uint8Array): unknown {
  checkMessagePack(bytes);
  try {
    const value = decoder.decode(plainBytes(bytes));
    // It would hold them until the next message.
    if (bytes.length > COPIED_BYTES_MAX) decoder = new Decoder(DECODE_OPTIONS);
    return value;
  } catch (thrown) {
    // What it had begun with is dropped.
    decoder = new Decoder(DECODE_OPTIONS);
    if (thrown instanceof Failure) throw thrown;
    // The library refuses the key __proto__, for one.
    throw new Failure("bad_message", "Cannot decode message: it is not plain MessagePack", { cause: thrown });
  }
}

function isPlain(value: unknown): boolean {
  if (Array.isArray(value) || value instanceof Uint8Array) return true;
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
