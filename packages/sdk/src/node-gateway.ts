import { open } from "node:fs/promises";
import { authorized } from "./authorized.ts";
import { type ClientNameOptions, named } from "./client-name.ts";
import { CapsemError } from "./error.ts";
import { type GatewayUrlOptions, parseGatewayUrl } from "./gateway-url.ts";
import { checkGiven } from "./given.ts";
import { TOKEN_FILE_BYTES_MAX } from "./limits.ts";
import { gatewayDial } from "./node-dial.ts";
import { codeOf } from "./node-error.ts";
import { httpTransport } from "./node-transport.ts";
import { createTokens, type Token } from "./token.ts";
import type { Transport } from "./transport.ts";

export type NodeGatewayOptions = { readonly url: string } & GatewayUrlOptions &
  ClientNameOptions &
  (
    | { readonly token: Token; readonly tokenFile?: never }
    /** Read at the first call, and again when the gateway refused what was in it. */
    | { readonly tokenFile: string; readonly token?: never }
  );

/**
 * The gateway over node:http and `ws`: unlike Node's fetch they hold a bounded part of a large transfer, and Node 20
 * has no WebSocket of its own. Nothing is opened before the first call. With a `tokenFile`, an http address of this machine
 * and Linux, nothing is sent unless the file's owner listens there.
 */
export function nodeGatewayTransport(options: NodeGatewayOptions): Transport {
  checkGiven(options, ["token", "tokenFile"]);
  const address = parseGatewayUrl(options.url, options);
  const { token, tokenFile } = options;
  if (token !== undefined || tokenFile === undefined)
    return authorized(
      named(
        httpTransport(() => gatewayDial(address)),
        options,
      ),
      createTokens(token ?? ""),
    );
  // The token comes before every connection, and with it whose file it is.
  let ownerUid = Number.NaN;
  const tokens = createTokens(async () => {
    const read = await readToken(tokenFile);
    ownerUid = read.ownerUid;
    return read.token;
  });
  return authorized(
    named(
      httpTransport(() => gatewayDial(address, () => ownerUid)),
      options,
    ),
    tokens,
  );
}

async function readToken(path: string): Promise<{ token: string; ownerUid: number }> {
  try {
    const file = await open(path);
    try {
      const { uid } = await file.stat();
      const { buffer, bytesRead } = await file.read(new Uint8Array(TOKEN_FILE_BYTES_MAX), 0);
      const token = new TextDecoder("latin1").decode(buffer.subarray(0, bytesRead)).trim();
      return { token, ownerUid: uid };
    } finally {
      await file.close();
    }
  } catch (cause) {
    const why = codeOf(cause) ?? "unexpected error";
    throw new CapsemError("unauthorized", `Cannot read the gateway's token file: ${why}`, { cause });
  }
}
