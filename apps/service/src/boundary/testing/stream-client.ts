import { createConnection } from "node:net";
import { expect } from "vitest";
import { WebSocket } from "ws";

interface Message {
  readonly type: string;
  readonly job_id?: string;
  readonly exit_code?: number | null;
  readonly error?: { readonly kind: string; readonly status: number; readonly rule_id?: string };
}

/** A client of capsem.stream.v1, as far as these tests need one. */
export class StreamClient {
  readonly socket: WebSocket;
  readonly messages: Message[] = [];
  output = "";

  constructor(socketPath: string, id: string) {
    this.socket = new WebSocket(`ws://localhost/vms/${id}/stream`, ["capsem.stream.v1"], {
      createConnection: () => createConnection(socketPath),
    });
    this.socket.on("error", () => undefined);
    this.socket.on("message", (data: Buffer) => {
      if (data[0] === 4) this.messages.push(JSON.parse(data.subarray(1).toString()) as Message);
      else this.output += data.subarray(1).toString();
    });
  }

  async send(message: object): Promise<this> {
    if (this.socket.readyState !== WebSocket.OPEN) {
      await new Promise((resolve) => this.socket.once("open", resolve));
    }
    this.socket.send(Buffer.concat([Buffer.of(3), Buffer.from(JSON.stringify(message))]));
    return this;
  }

  async got(type: string): Promise<Message> {
    const find = () => this.messages.find((message) => message.type === type);
    await expect.poll(find, { timeout: 30_000 }).toBeDefined();
    return find() as Message;
  }
}
