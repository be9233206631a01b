import { homedir } from "node:os";
import { join } from "node:path";
import { type Client, createClient as createClientOf } from "./client.ts";
import type { ClientNameOptions } from "./client-name.ts";
import { type NodeGatewayOptions, nodeGatewayTransport } from "./node-gateway.ts";
import { nodeTransport } from "./node-transport.ts";
import { isTransport, type Transport } from "./transport.ts";

export { CapsemError } from "./error.ts";
export { Dirent, Stats } from "./fs-stats.ts";
export type * from "./index.ts";
export { connectUnix } from "./node-connect.ts";
export { type NodeGatewayOptions, nodeGatewayTransport } from "./node-gateway.ts";
export { nodeTransport } from "./node-transport.ts";
export { operation } from "./operation.ts";
export { sh } from "./shell-words.ts";

/** As in the root entry, over node:http and `ws`, and with a `tokenFile`. Nothing is opened before the first call. */
export function createClient(target: NodeGatewayOptions | Transport): Client {
  return createClientOf(isTransport(target) ? target : nodeGatewayTransport(target));
}

export interface NodeSocketOptions extends ClientNameOptions {
  /** The folder of the service; its socket is `run/service.sock` in it. */
  readonly home?: string;
  /** Wins over `home`. */
  readonly socketPath?: string;
}
export type NodeClientOptions = NodeSocketOptions | NodeGatewayOptions;

/** A client over the service's own Unix socket, or of a gateway when a `url` is given. */
export function createNodeClient(options: NodeClientOptions = {}): Client {
  if ("url" in options) return createClient(options);
  const home = options.home ?? process.env.CAPSEM_HOME ?? join(homedir(), ".capsem");
  return createClient(nodeTransport(options.socketPath ?? socketPathOf(home), options));
}

export function socketPathOf(home: string): string {
  return join(home, "run", "service.sock");
}
