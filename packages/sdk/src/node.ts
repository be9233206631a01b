import { homedir } from "node:os";
import { join } from "node:path";
import { type Client, createClient } from "./client.ts";
import { nodeTransport } from "./node-transport.ts";

export { connectUnix } from "./node-connect.ts";
export { nodeTransport } from "./node-transport.ts";

export interface NodeClientOptions {
  /** The folder of the service; its socket is `run/service.sock` in it. */
  readonly home?: string;
  /** Wins over `home`. */
  readonly socketPath?: string;
}

/** A client over the service's Unix socket. Nothing is opened before the first call. */
export function createNodeClient(options: NodeClientOptions = {}): Client {
  const home = options.home ?? process.env.CAPSEM_HOME ?? join(homedir(), ".capsem");
  return createClient(nodeTransport(options.socketPath ?? socketPathOf(home)));
}

export function socketPathOf(home: string): string {
  return join(home, "run", "service.sock");
}
