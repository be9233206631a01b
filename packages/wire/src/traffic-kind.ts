/** What is behind the metadata line of a stream of port 5002. */
export type TrafficKind = "mcp" | "http" | "tls" | "other";

/** Bytes that are enough to tell, whatever they are. */
export const TRAFFIC_KIND_BYTES = 20;

/** The longest method that we wait for: of the registered ones UPDATEREDIRECTREF is. */
const METHOD_CHARS_MAX = 17;

/** Told by the first bytes; undefined while more are needed. */
export function trafficKindOf(bytes: Uint8Array): TrafficKind | undefined {
  const first = bytes[0];
  if (first === undefined) return undefined;
  // The length word of a frame that is not too long starts so, and so does one that ends a session.
  if (first === 0) return "mcp";
  if (first === 0x16) {
    if (bytes.length < 2) return undefined;
    return bytes[1] === 0x03 ? "tls" : "other";
  }
  const method = methodOf(bytes);
  if (method === "http" || method === undefined) return method;
  if (bytes.length < 6) return undefined;
  // A frame that announces too much is still a frame, and is answered as one.
  return bytes[4] === 0x4d && bytes[5] === 0x43 ? "mcp" : "other";
}

/** "no": what came can be no method and a space behind it. */
function methodOf(bytes: Uint8Array): "http" | "no" | undefined {
  for (let at = 0; at <= METHOD_CHARS_MAX; at += 1) {
    const byte = bytes[at];
    if (byte === undefined) return undefined;
    if (byte === 0x20 && at > 0) return isHttp2(bytes);
    const isLetter = byte >= 0x41 && byte <= 0x5a;
    if (!isLetter && byte !== 0x2d) return "no";
  }
  return "no";
}

/** The preface of HTTP/2, `PRI * HTTP/2.0`, reads like a request; nobody here speaks it. */
function isHttp2(bytes: Uint8Array): "http" | "no" {
  const isPri = bytes[0] === 0x50 && bytes[1] === 0x52 && bytes[2] === 0x49 && bytes[3] === 0x20;
  return isPri ? "no" : "http";
}
