/** A view of the same bytes that is no Node Buffer: a Buffer's `slice` does not copy, and its views are Buffers. */
export function plainBytes(bytes: Uint8Array): Uint8Array {
  if (bytes.constructor === Uint8Array) return bytes;
  return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
