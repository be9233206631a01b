import { Agent, request as httpRequest, type RequestOptions } from "node:http";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { isLoopbackHost } from "@capsem/base";
import type { GatewayUrl } from "./gateway-url.ts";
import { connectUnix } from "./node-connect.ts";
import { CheckedPort } from "./node-peer.ts";
import { GATEWAY_PEER, SERVICE_PEER } from "./transport.ts";

const KEPT_CONNECTIONS_MAX = 4;

/** As node:http asks for a connection: it is returned, or given later. */
export type Connect = (
  options: object,
  done: (error: Error | null, socket: Duplex) => void,
) => Socket | undefined;

/** How a transport over node:http reaches its other end. Reads share kept connections; a mutation has one of its own. */
export interface Dial {
  /** What errors call the other end: an address, where one was given. */
  readonly name: string;
  /** Who is gone when a connection breaks off. */
  readonly peer: string;
  readonly request: typeof httpRequest;
  readonly prefix: string;
  readonly webSocket: string;
  /** A connection for a WebSocket, where its address does not say enough. */
  readonly connect?: Connect;
  options(mutates: boolean): RequestOptions;
  close(): void;
}

export function unixDial(socketPath: string): Dial {
  const agent = new Agent({ keepAlive: true, maxFreeSockets: KEPT_CONNECTIONS_MAX });
  const connect = () => connectUnix(socketPath);
  agent.createConnection = connect;
  return {
    name: "service",
    peer: SERVICE_PEER,
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

/**
 * TLS is loaded only for an https address. `ownerUid` tells whose token file it is, once it was read: on a plain
 * connection inside this machine nobody else may be at the other end. Null: the token is from elsewhere.
 */
export async function gatewayDial(
  { url, http, webSocket }: GatewayUrl,
  ownerUid: (() => number) | null = null,
): Promise<Dial> {
  const isHttps = url.protocol === "https:";
  const library = isHttps ? await import("node:https") : { Agent, request: httpRequest };
  const agent = new library.Agent({ keepAlive: true, maxFreeSockets: KEPT_CONNECTIONS_MAX });
  const port = url.port === "" ? (isHttps ? 443 : 80) : Number(url.port);
  // An IPv6 address is written in brackets in a URL alone.
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const isChecked =
    ownerUid !== null && !isHttps && isLoopbackHost(url.hostname) && process.platform === "linux";
  const connect = isChecked ? checkedConnect(host, port, ownerUid) : null;
  if (connect !== null) agent.createConnection = connect;
  const target = { host, port, headers: { host: url.host } };
  const fresh = connect === null ? { agent: false as const } : { createConnection: connect };
  return {
    name: http,
    peer: GATEWAY_PEER,
    request: library.request,
    prefix: url.pathname.replace(/\/+$/, ""),
    webSocket,
    ...(connect === null ? {} : { connect }),
    options: (mutates) => ({ ...target, ...(mutates ? fresh : { agent }) }),
    close: () => agent.destroy(),
  };
}

function checkedConnect(host: string, port: number, ownerUid: () => number): Connect {
  const checked = new CheckedPort(host, port);
  return (_options, done) => {
    checked.connect(ownerUid()).then(
      (socket) => done(null, socket),
      // Node reads no socket beside an error, though its types ask for one.
      (thrown: Error) => done(thrown, new Duplex()),
    );
    return undefined;
  };
}
