import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface FixtureGateway {
  readonly url: string;
  /** The one good token; a test may change it. */
  token: string;
  /** May answer a request by itself, or break its connection. True: it did. */
  intercept: ((request: IncomingMessage, response: ServerResponse) => boolean) | null;
  /** Method and path of each request that had the token. */
  readonly seen: string[];
  close(): Promise<void>;
}

/** What a gateway is to its clients: a token, then the service behind it. A client that leaves takes its call along. */
export async function startFixtureGateway(socketPath: string): Promise<FixtureGateway> {
  const seen: string[] = [];
  const server = createServer((incoming, response) => {
    if (incoming.headers.authorization !== `Bearer ${gateway.token}`) {
      const error = { kind: "unauthorized", reason: "Cannot serve the request: no token", status: 401 };
      response.writeHead(401).end(JSON.stringify({ error: { ...error, retryable: false } }));
      return;
    }
    seen.push(`${incoming.method} ${incoming.url}`);
    if (gateway.intercept?.(incoming, response) !== true) pass(socketPath, incoming, response);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const gateway: FixtureGateway = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    token: "Fixture0Token",
    intercept: null,
    seen,
    close: () =>
      new Promise((done) => {
        server.close(() => done());
        server.closeAllConnections();
      }),
  };
  return gateway;
}

function pass(socketPath: string, incoming: IncomingMessage, response: ServerResponse): void {
  const { method, url: path, headers } = incoming;
  const outgoing = request({ socketPath, method, path, headers }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  outgoing.on("error", () => response.destroy());
  response.on("close", () => outgoing.destroy());
  incoming.pipe(outgoing);
}
