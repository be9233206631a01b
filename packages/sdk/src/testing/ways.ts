import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WebSocket } from "ws";
import { type Gateway, startGateway } from "../../../../apps/gateway/src/gateway.ts";
import { nodePowers } from "../../../../apps/gateway/src/powers-node.ts";
import { ensureToken, rotateToken } from "../../../../apps/gateway/src/token-file.ts";
import { type Client, createClient } from "../client.ts";
import { createNodeClient, createClient as createNodeGatewayClient } from "../node.ts";
import type { WebSocketClass } from "../web-socket.ts";
import { type FixtureOptions, type FixtureService, startFixtureService } from "./fixture-service.ts";

/** The ways from a client to a service: its socket, and the gateway as Node and as a browser reach it. */
export const WAYS = ["socket", "gateway over node:http", "gateway over fetch"] as const;
export type Way = (typeof WAYS)[number];

export interface Rig {
  readonly home: string;
  readonly service: FixtureService;
  readonly gateway: Gateway;
  readonly url: string;
  readonly tokenFile: string;
  token(): string;
  /** The gateway knows at once, its clients do not. */
  rotate(): Promise<void>;
  client(way: Way): Client;
  close(): Promise<void>;
}

/** The real gateway before a fixture service. */
export async function startWays(options: Omit<FixtureOptions, "home"> = {}): Promise<Rig> {
  const home = mkdtempSync(join(tmpdir(), "sdk-ways-"));
  const service = await startFixtureService({ home, ...options });
  const run = join(home, "run");
  ensureToken(run);
  const gateway = await startGateway(nodePowers(home, 0), () => undefined);
  const tokenFile = join(run, "gateway.token");
  const token = () => readFileSync(tokenFile, "utf8").trim();
  const url = `http://127.0.0.1:${gateway.port}`;
  const clients: Client[] = [];
  return {
    home,
    service,
    gateway,
    url,
    tokenFile,
    token,
    rotate: async () => {
      rotateToken(run);
      await gateway.reloadToken();
    },
    client: (way) => {
      const client = clientOf(way, { home, url, tokenFile });
      clients.push(client);
      return client;
    },
    close: async () => {
      for (const client of clients) client.close();
      await Promise.all([gateway.close(), service.close()]);
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** A library stands in for the WebSocket that browsers have: it is spoken to as theirs. */
const BROWSER_SOCKET = WebSocket as unknown as WebSocketClass;

export interface ClientWay {
  readonly home: string;
  readonly url: string;
  readonly tokenFile: string;
}

export function clientOf(way: Way, { home, url, tokenFile }: ClientWay): Client {
  switch (way) {
    case "socket":
      return createNodeClient({ home });
    case "gateway over node:http":
      return createNodeGatewayClient({ url, tokenFile });
    case "gateway over fetch": {
      const token = () => readFileSync(tokenFile, "utf8").trim();
      return createClient({ url, token, webSocket: BROWSER_SOCKET });
    }
  }
}
