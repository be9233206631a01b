/** The text of UTF-8, a byte order mark at its beginning included: what is hashed must be what was sent. */
export function utf8Text({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString("utf8");
}
