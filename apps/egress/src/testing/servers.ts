// Real servers of this machine, for tests.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type RequestListener, type Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

export interface Listening {
  readonly port: number;
  readonly url: string;
  /** Connections that were made to it. */
  readonly sockets: Set<Socket>;
  connections: number;
}

async function listening(
  server: Server | ReturnType<typeof createTcpServer>,
  scheme: string,
): Promise<Listening> {
  const sockets = new Set<Socket>();
  const state = { port: 0, url: "", sockets, connections: 0 };
  server.on("connection", (socket: Socket) => {
    state.connections += 1;
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  state.port = (server.address() as AddressInfo).port;
  state.url = `${scheme}://127.0.0.1:${state.port}`;
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return state;
}

export function httpServer(listener: RequestListener): Promise<Listening> {
  return listening(createServer({ keepAliveTimeout: 30_000 }, listener), "http");
}

/** Says what it likes, at once or when something came. */
export function rawServer(onSocket: (socket: Socket) => void): Promise<Listening> {
  return listening(createTcpServer(onSocket), "http");
}

export function tlsServer(
  { key, cert }: { readonly key: string; readonly cert: string },
  listener: RequestListener,
): Promise<Listening> {
  return listening(createTlsServer({ key, cert }, listener) as unknown as Server, "https");
}

export interface Authority {
  /** In PEM. */
  readonly ca: string;
  issue(names: string): { readonly key: string; readonly cert: string };
}

/** An authority of its own; `names` as openssl has them, such as `DNS:example.test,IP:127.0.0.1`. */
export function newAuthority(): Authority {
  const folder = mkdtempSync(join(tmpdir(), "egress-tls-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const openssl = (...words: string[]) => execFileSync("openssl", words, { cwd: folder, stdio: "pipe" });
  const read = (name: string) => readFileSync(join(folder, name), "utf8");
  const ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  openssl(
    "req",
    "-x509",
    ...ec,
    "-keyout",
    "ca.key",
    "-out",
    "ca.crt",
    "-days",
    "2",
    "-subj",
    "/CN=test authority",
  );
  let count = 0;
  return {
    ca: read("ca.crt"),
    issue(names) {
      count += 1;
      const [key, csr, crt] = ["key", "csr", "crt"].map((end) => `${count}.${end}`) as [
        string,
        string,
        string,
      ];
      openssl(
        "req",
        ...ec,
        "-keyout",
        key,
        "-out",
        csr,
        "-subj",
        "/CN=test",
        "-addext",
        `subjectAltName=${names}`,
      );
      const signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copy"];
      openssl("x509", "-req", "-in", csr, ...signed, "-days", "2", "-out", crt);
      return { key: read(key), cert: read(crt) };
    },
  };
}

export async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request) text += String(chunk);
  return text;
}
