import { connect as dial } from "node:net";
import { connect, type LaneRig } from "./lane-rig.ts";

export interface HttpAnswer {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/** What a test says of a request; the rest is as a client would send it. */
export interface HttpAsk {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

const JSON_HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream" };

/** The bytes of a request. A header of "" is left out. */
export function requestBytes({ method = "POST", path = "/mcp", headers = {}, body }: HttpAsk): Uint8Array {
  const text = body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body);
  const all: Record<string, string> = { host: "mcp.capsem.internal", ...JSON_HEADERS, ...headers };
  if (body !== undefined && all["transfer-encoding"] === undefined) {
    all["content-length"] ??= String(Buffer.byteLength(text));
  }
  const lines = Object.entries(all).filter(([, value]) => value !== "");
  const head = [`${method} ${path} HTTP/1.1`, ...lines.map(([name, value]) => `${name}: ${value}`)];
  return new Uint8Array(Buffer.from(`${head.join("\r\n")}\r\n\r\n${text}`));
}

/** One connection of a program in the guest, byte by byte. */
export class HttpGuest {
  readonly stream;
  /** What came and was not taken. */
  received = "";
  isOver = false;
  #waiters: (() => void)[] = [];

  constructor(rig: LaneRig, processName?: string) {
    this.stream = connect(rig, processName);
    void this.#read();
  }

  write(bytes: Uint8Array | string): void {
    void this.stream.write(typeof bytes === "string" ? new Uint8Array(Buffer.from(bytes)) : bytes);
  }

  async ask(what: HttpAsk): Promise<HttpAnswer> {
    this.write(requestBytes(what));
    return await this.answer();
  }

  /** The next answer, which has a length; throws where the connection ends first. */
  async answer(): Promise<HttpAnswer> {
    const { status, headers } = await this.head();
    const length = Number(headers.get("content-length") ?? 0);
    await this.#until(() => Buffer.byteLength(this.received) >= length);
    const bytes = Buffer.from(this.received);
    this.received = bytes.subarray(length).toString();
    return { status, headers, body: bytes.subarray(0, length).toString() };
  }

  async head(): Promise<Omit<HttpAnswer, "body">> {
    await this.#until(() => this.received.includes("\r\n\r\n"));
    const at = this.received.indexOf("\r\n\r\n");
    const [first = "", ...lines] = this.received.slice(0, at).split("\r\n");
    this.received = this.received.slice(at + 4);
    const headers = new Map(
      lines.map((line) => {
        const colon = line.indexOf(":");
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
      }),
    );
    return { status: Number(first.split(" ")[1]), headers };
  }

  /** Waits for a text in what came, and takes everything up to its end. */
  async through(text: string): Promise<string> {
    await this.#until(() => this.received.includes(text));
    const end = this.received.indexOf(text) + text.length;
    const taken = this.received.slice(0, end);
    this.received = this.received.slice(end);
    return taken;
  }

  async over(): Promise<void> {
    while (!this.isOver) await new Promise<void>((resolve) => this.#waiters.push(resolve));
  }

  async #until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      if (this.isOver) throw new Error(`the connection ended, behind ${JSON.stringify(this.received)}`);
      await new Promise<void>((resolve) => this.#waiters.push(resolve));
    }
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder();
    try {
      for (let chunk = await this.stream.read(); chunk !== null; chunk = await this.stream.read()) {
        this.received += decoder.decode(chunk, { stream: true });
        this.#wake();
      }
    } catch {
      this.received += "";
    }
    this.isOver = true;
    this.#wake();
  }

  #wake(): void {
    for (const waiter of this.#waiters.splice(0)) waiter();
  }
}

/** Where a fetch connects to, whatever host it names. */
export function dialer(port: number) {
  return (_options: unknown, done: (error: Error | null, socket: ReturnType<typeof dial> | null) => void) => {
    const socket = dial(port, "127.0.0.1");
    socket.once("connect", () => done(null, socket));
    socket.once("error", (error) => done(error, null));
  };
}
