import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

export interface Upstream {
  readonly http: Server;
  /** What came: the request line's two words and the headers as they were. */
  readonly calls: {
    readonly method: string;
    readonly target: string;
    readonly rawHeaders: readonly string[];
  }[];
  /** Replaced by a test. */
  onRequest: (request: IncomingMessage, response: ServerResponse) => void;
  onUpgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
  close(): Promise<void>;
}

/** A service of a test's own, for what the real one does not do on demand: cut, stall, vanish. */
export function startUpstream(socketPath: string): Promise<Upstream> {
  const http = createServer({ keepAliveTimeout: 60_000 });
  const sockets = new Set<Socket>();
  const upstream: Upstream = {
    http,
    calls: [],
    onRequest: (request, response) => {
      request.resume().on("end", () => {
        response.setHeader("content-type", "application/json");
        response.end('{"ok":true}');
      });
    },
    onUpgrade: (_request, socket) => {
      socket.destroy();
    },
    close: () =>
      new Promise((resolve) => {
        http.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
  http.on("connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  const note = ({ method = "", url = "", rawHeaders }: IncomingMessage) =>
    upstream.calls.push({ method, target: url, rawHeaders });
  http.on("request", (request, response) => {
    note(request);
    upstream.onRequest(request, response);
  });
  http.on("upgrade", (request, socket, head) => {
    note(request);
    socket.on("error", () => socket.destroy());
    upstream.onUpgrade(request, socket, head);
  });
  return new Promise((resolve, reject) => {
    http.once("error", reject);
    http.listen(socketPath, () => resolve(upstream));
  });
}
