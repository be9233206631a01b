import type { HttpHeader } from "@capsem/net";
import { FETCH_LIMITS } from "./limits.ts";

/** What a body is, as far as that can be told before it is read as text. */
export interface Media {
  /** In lower case, without parameters. What the server said, or `text/html`, `text/plain` or octets by its looks. */
  readonly mimeType: string;
  /** What the server said; null where it said none. */
  readonly charset: string | null;
  readonly kind: "html" | "text" | "binary";
}

const TEXT_TYPES =
  /^(?:text\/.+|.+\+(?:json|xml|yaml)|application\/(?:json|ld\+json|x-ndjson|jsonl|json5|xml|xhtml\+xml|javascript|x-javascript|ecmascript|typescript|yaml|x-yaml|toml|x-www-form-urlencoded|x-sh|x-shellscript|sql|graphql|rtf|x-tex|x-httpd-php|pgp-signature|pgp-keys|x-pem-file))$/;
const HTML_TYPES = /^(?:text\/html|application\/xhtml\+xml)$/;
/** What servers say when they do not know. */
const UNKNOWN_TYPES =
  /^(?:|application\/octet-stream|binary\/octet-stream|application\/unknown|unknown\/unknown)$/;

export function mediaOf(headers: readonly HttpHeader[], body: Uint8Array): Media {
  const [type = "", ...parameters] = (headerOf(headers, "content-type") ?? "").split(";");
  const said = type.trim().toLowerCase();
  const charset = charsetIn(parameters);
  if (UNKNOWN_TYPES.test(said)) {
    if (looksBinary(body)) return { mimeType: said || "application/octet-stream", charset, kind: "binary" };
    const isHtml = looksHtml(body);
    return { mimeType: isHtml ? "text/html" : "text/plain", charset, kind: isHtml ? "html" : "text" };
  }
  if (!TEXT_TYPES.test(said)) return { mimeType: said, charset, kind: "binary" };
  // Texts of two-byte units are full of zeros; all others have none.
  const isBinary = !isWide(charset, body) && looksBinary(body);
  if (isBinary) return { mimeType: said, charset, kind: "binary" };
  return { mimeType: said, charset, kind: HTML_TYPES.test(said) ? "html" : "text" };
}

export function headerOf(headers: readonly HttpHeader[], name: string): string | null {
  return headers.find(([each]) => each === name)?.[1] ?? null;
}

function charsetIn(parameters: readonly string[]): string | null {
  for (const parameter of parameters) {
    const found = /^\s*charset\s*=\s*"?([^"\s]{1,40})"?\s*$/i.exec(parameter);
    if (found?.[1] !== undefined) return found[1].toLowerCase();
  }
  return null;
}

function isWide(charset: string | null, body: Uint8Array): boolean {
  const mark = ((body[0] ?? 0) << 8) | (body[1] ?? 0);
  return mark === 0xfeff || mark === 0xfffe || /^(?:utf-?16|ucs-?2|iso-10646-ucs-2)/.test(charset ?? "");
}

function looksBinary(body: Uint8Array): boolean {
  return body.subarray(0, FETCH_LIMITS.binaryScanBytes).includes(0);
}

function looksHtml(body: Uint8Array): boolean {
  const start = Buffer.from(body.subarray(0, FETCH_LIMITS.charsetScanBytes)).toString("latin1");
  return /^\s*(?:<!--[\s\S]*?-->\s*)?<(?:!doctype html|html|head|body)\b/i.test(start);
}
