/** The only importer of the MessagePack library: plain values, no extension types, bounded before decoding. */

import { Bug, Failure, messageOf } from "@capsem/base";
import { Decoder, Encoder } from "@msgpack/msgpack";
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
