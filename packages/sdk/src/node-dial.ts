import { Agent, request as httpRequest, type RequestOptions } from "node:http";
import type { Socket } from "node:net";
import type { GatewayUrl } from "./gateway-url.ts";
import { connectUnix } from "./node-connect.ts";

const KEPT_CONNECTIONS_MAX = 4;

/** How a transport over node:http reaches its other end. Reads share kept connections; a mutation has one of its own. */
export interface Dial {
  readonly request: typeof httpRequest;
  readonly prefix: string;
  readonly webSocket: string;
  /** A connection for a WebSocket, where its address does not say enough. */
  readonly connect?: () => Socket;
  options(mutates: boolean): RequestOptions;
  close(): void;
}

export function unixDial(socketPath: string): Dial {
  const agent = new Agent({ keepAlive: true, maxFreeSockets: KEPT_CONNECTIONS_MAX });
  const connect = () => connectUnix(socketPath);
  agent.createConnection = connect;
  return {
    request: httpRequest,
    prefix: "",
    webSocket: "ws://localhost",
    connect,
    options: (mutates) => ({
      host: "localhost",
      // An agent would look for the name to ask TLS for, with a pattern that takes milliseconds to compile.
      servername: "",
      ...(mutates ? { createConnection: connect } : { agent }),
    }),
    close: () => agent.destroy(),
  };
}

/** TLS is loaded only for an https address. */
export async function gatewayDial({ url, webSocket }: GatewayUrl): Promise<Dial> {
  const isHttps = url.protocol === "https:";
  const library = isHttps ? await import("node:https") : { Agent, request: httpRequest };
  const agent = new library.Agent({ keepAlive: true, maxFreeSockets: KEPT_CONNECTIONS_MAX });
  const target = {
    // An IPv6 address is written in brackets in a URL alone.
    host: url.hostname.replace(/^\[(.*)\]$/, "$1"),
    port: url.port === "" ? (isHttps ? 443 : 80) : Number(url.port),
    headers: { host: url.host },
  };
  return {
    request: library.request,
    prefix: url.pathname.replace(/\/+$/, ""),
    webSocket,
    options: (mutates) => ({ ...target, agent: mutates ? false : agent }),
    close: () => agent.destroy(),
  };
}
