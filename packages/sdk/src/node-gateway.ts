import { open } from "node:fs/promises";
import { authorized } from "./authorized.ts";
import { CapsemError } from "./error.ts";
import { parseGatewayUrl } from "./gateway-url.ts";
import { TOKEN_FILE_BYTES_MAX } from "./limits.ts";
import { gatewayDial } from "./node-dial.ts";
import { codeOf } from "./node-error.ts";
import { httpTransport } from "./node-transport.ts";
import { createTokens, type Token } from "./token.ts";
import type { Transport } from "./transport.ts";

export type NodeGatewayOptions = { readonly url: string } & (
  | { readonly token: Token; readonly tokenFile?: never }
  /** Read at the first call, and again when the gateway refused what was in it. */
  | { readonly tokenFile: string; readonly token?: never }
);

/**
 * The gateway over node:http and `ws`: unlike Node's fetch they hold a bounded part of a large transfer, and Node 20
 * has no WebSocket of its own. Nothing is opened before the first call.
 */
export function nodeGatewayTransport(options: NodeGatewayOptions): Transport {
  const address = parseGatewayUrl(options.url);
  const { token, tokenFile } = options;
  const tokens = createTokens(token ?? (() => readToken(tokenFile ?? "")));
  return authorized(
    httpTransport(() => gatewayDial(address)),
    tokens,
  );
}

async function readToken(path: string): Promise<string> {
  try {
    const file = await open(path);
    try {
      const { buffer, bytesRead } = await file.read(new Uint8Array(TOKEN_FILE_BYTES_MAX), 0);
      return new TextDecoder("latin1").decode(buffer.subarray(0, bytesRead)).trim();
    } finally {
      await file.close();
    }
  } catch (cause) {
    const why = codeOf(cause) ?? "unexpected error";
    throw new CapsemError("unauthorized", `Cannot read the gateway's token file: ${why}`, { cause });
  }
}
