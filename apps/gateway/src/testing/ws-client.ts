import { WebSocket } from "ws";

export interface WsOptions {
  readonly token?: string;
  readonly protocols?: readonly string[];
  readonly headers?: Record<string, string>;
}

/** A client of one WebSocket that keeps what it gets. Its failures are values: `refusal` or `closed`. */
export class WsClient {
  readonly socket: WebSocket;
  readonly messages: Buffer[] = [];
  readonly closed: Promise<{ code: number; reason: string }>;
  /** The status of a refused handshake, or null once it is open. */
  readonly refusal: Promise<{ status: number; text: string } | null>;

  constructor(port: number, path: string, options: WsOptions) {
    this.socket = new WebSocket(`ws://127.0.0.1:${port}${path}`, [...(options.protocols ?? [])], {
      headers: {
        ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
        ...options.headers,
      },
      perMessageDeflate: true,
    });
    this.socket.on("error", () => undefined);
    this.socket.on("message", (data: Buffer) => this.messages.push(data));
    this.closed = new Promise((resolve) => {
      this.socket.on("close", (code, reason) => resolve({ code, reason: reason.toString() }));
    });
    this.refusal = new Promise((resolve) => {
      this.socket.once("open", () => resolve(null));
      this.socket.once("unexpected-response", (_request, answer) => {
        let text = "";
        answer.on("data", (part) => {
          text += String(part);
        });
        answer.on("close", () => {
          resolve({ status: answer.statusCode ?? 0, text });
          this.socket.terminate();
        });
      });
      this.socket.once("close", () => resolve({ status: 0, text: "" }));
    });
  }
}
