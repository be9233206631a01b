import { textOf, utf8 } from "@capsem/base";
import { MCP_FRAME_LIMITS } from "./mcp-frame-limits.ts";

/**
 * A process name as it may be shown: control characters, spaces and what is no UTF-8 become `_`, at most 128 bytes, cut
 * between characters. It is what the guest claims: good for attribution, never for a permission.
 */
export function cleanProcessName(name: string): string {
  const clean = name.replaceAll(/[\p{Cc}\p{Cf}\p{Z}\p{Cs}\ufffd]/gu, "_");
  const bytes = utf8(clean);
  if (bytes.length <= MCP_FRAME_LIMITS.nameBytesMax) return clean;
  let end = MCP_FRAME_LIMITS.nameBytesMax;
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return textOf(bytes.subarray(0, end));
}
