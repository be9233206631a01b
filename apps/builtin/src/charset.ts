import { FETCH_LIMITS } from "./limits.ts";

/**
 * Bytes as text. As browsers have it: a mark of the order of bytes counts most, then the server's word, then the page's
 * own; without any it is UTF-8, or where it is not, windows-1252. What cannot be read becomes U+FFFD. The mark is no
 * part of the text.
 */
export function decodeText(body: Uint8Array, charset: string | null, isHtml: boolean): string {
  const declared = markOf(body) ?? charset ?? (isHtml ? metaCharset(body) : null);
  const decoder = declared === null ? null : decoderFor(declared);
  if (decoder !== null) return decoder.encoding === LATIN ? decodeLatin(body) : decoder.decode(body);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    return decodeLatin(body);
  }
}

/** What `iso-8859-1` and `ascii` mean on the web as well. */
const LATIN = "windows-1252";
/** Of the bytes 0x80 to 0x9f. Node 20 takes them for the control characters that ISO 8859-1 has there. */
const LATIN_HIGH = "€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ";

function decodeLatin(body: Uint8Array): string {
  const text = Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("latin1");
  return text.replace(/[\x80-\x9f]/g, (unit) => LATIN_HIGH[unit.charCodeAt(0) - 0x80] ?? unit);
}

/** Loads what decoders need, while files can still be opened. */
export function warmCharsets(): void {
  for (const name of [
    "utf-8",
    "utf-16le",
    "windows-1252",
    "shift_jis",
    "gb18030",
    "big5",
    "euc-kr",
    "koi8-r",
  ])
    decoderFor(name)?.decode(Uint8Array.of(0x41, 0xc3, 0xa9));
}

function markOf(body: Uint8Array): string | null {
  const [first, second, third] = body;
  if (first === 0xef && second === 0xbb && third === 0xbf) return "utf-8";
  if (first === 0xfe && second === 0xff) return "utf-16be";
  return first === 0xff && second === 0xfe ? "utf-16le" : null;
}

function metaCharset(body: Uint8Array): string | null {
  const start = Buffer.from(body.subarray(0, FETCH_LIMITS.charsetScanBytes)).toString("latin1");
  const found = /<meta\b[^>]{0,200}?\bcharset\s*=\s*["']?\s*([\w:.-]{1,40})/i.exec(start)?.[1]?.toLowerCase();
  // A page that says so in bytes of one unit is not what it says.
  if (found === undefined) return null;
  return /^utf-?16/.test(found) ? "utf-8" : found;
}

/** Null: there is no such charset. */
function decoderFor(label: string): InstanceType<typeof TextDecoder> | null {
  try {
    return new TextDecoder(label);
  } catch {
    return null;
  }
}
