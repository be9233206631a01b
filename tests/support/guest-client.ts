/** MCP clients that are programs in a VM: what they print is read here, and what they are to say is written here. */
import { type Deferred, defer } from "@capsem/base";
import type { Job, Vm } from "@capsem/sdk";
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/client";

export const STDIO_CLIENT = "/run/capsem-mcp-server";
export const HTTP_URL = "http://mcp.capsem.internal/mcp";

export interface Message {
  readonly id?: number | string | null;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: {
    readonly code: number;
    readonly message: string;
    readonly data?: Record<string, unknown>;
  };
}

export interface GuestClientOptions {
  /** A shell line that runs the client; its stdin and stdout are the client's. */
  readonly command?: string;
  readonly env?: Record<string, string>;
  /** Of an answer. A slow guest is in it. */
  readonly timeoutMs?: number;
}

/** The stdio client in the VM. Nothing throws for what a server or the proxy answers. */
export class GuestClient {
  /** Every line that the client printed. */
  readonly texts: string[] = [];
  readonly notifications: Message[] = [];
  readonly #job: Job;
  readonly #timeoutMs: number;
  readonly #waiting = new Map<number | string, Deferred<Message>>();
  readonly #reading: Promise<void>;
  #nextId = 1;

  constructor(vm: Vm, options: GuestClientOptions = {}) {
    const { command = STDIO_CLIENT, env = {} } = options;
    this.#timeoutMs = options.timeoutMs ?? 60_000;
    this.#job = vm.stream({ command, env, stdin: true });
    this.#reading = this.#read();
  }

  async initialize(): Promise<Message> {
    const answer = await this.request("initialize", {
      protocolVersion: "2025-11-25",
      capabilities: {},
      clientInfo: { name: "guest-test", version: "1" },
    });
    await this.notify("notifications/initialized");
    return answer;
  }

  /** Rejects only when no answer comes. */
  request(method: string, params: Readonly<Record<string, unknown>> = {}): Promise<Message> {
    return this.begin(method, params).answer;
  }

  begin(method: string, params: Readonly<Record<string, unknown>> = {}) {
    const id = this.#nextId;
    this.#nextId += 1;
    const waiter = defer<Message>();
    this.#waiting.set(id, waiter);
    const timer = setTimeout(
      () => waiter.reject(new Error(`no answer to ${method} in ${this.#timeoutMs} ms`)),
      this.#timeoutMs,
    );
    const answer = waiter.promise.finally(() => clearTimeout(timer));
    answer.catch(() => undefined);
    const sent = this.say({ jsonrpc: "2.0", id, method, params });
    return { id, answer, sent };
  }

  call(name: string, args: Readonly<Record<string, unknown>> = {}): Promise<Message> {
    return this.request("tools/call", { name, arguments: args });
  }

  notify(method: string, params: Readonly<Record<string, unknown>> = {}): Promise<void> {
    return this.say({ jsonrpc: "2.0", method, params });
  }

  say(message: unknown): Promise<void> {
    return this.#job.write(`${JSON.stringify(message)}\n`);
  }

  /** All pages. */
  async toolNames(): Promise<string[]> {
    const names: string[] = [];
    let cursor: unknown;
    do {
      const { result } = await this.request("tools/list", cursor === undefined ? {} : { cursor });
      for (const { name } of (result?.tools ?? []) as { name: string }[]) names.push(name);
      cursor = result?.nextCursor;
    } while (cursor !== undefined);
    return names.sort();
  }

  async close(): Promise<void> {
    await this.#job.closeStdin();
    await this.#reading;
  }

  async #read(): Promise<void> {
    let reason = new Error("the client has ended");
    try {
      for await (const { stream, line: text } of this.#job.lines()) {
        if (stream !== "stdout" || text === "") continue;
        this.texts.push(text);
        this.#take(JSON.parse(text) as Message);
      }
    } catch (thrown) {
      reason = thrown as Error;
    }
    for (const waiter of this.#waiting.values()) waiter.reject(reason);
    this.#waiting.clear();
  }

  #take(message: Message): void {
    const { id } = message;
    if (message.method !== undefined || id === undefined || id === null) {
      this.notifications.push(message);
      return;
    }
    this.#waiting.get(id)?.resolve(message);
    this.#waiting.delete(id);
  }
}

/** The same program under somebody else's client. */
export function guestTransport(vm: Vm): Transport {
  let job: Job | undefined;
  const transport: Transport = {
    async start() {
      const running = vm.stream({ command: STDIO_CLIENT, stdin: true });
      job = running;
      const read = async () => {
        for await (const { stream, line: text } of running.lines())
          if (stream === "stdout" && text !== "") transport.onmessage?.(JSON.parse(text) as JSONRPCMessage);
        transport.onclose?.();
      };
      read().catch((thrown) => transport.onerror?.(thrown as Error));
    },
    async send(message) {
      await job?.write(`${JSON.stringify(message)}\n`);
    },
    async close() {
      await job?.closeStdin();
    },
  };
  return transport;
}

export interface HttpAnswer {
  readonly status: number;
  /** Of the body's JSON, or the last event's. */
  readonly message: Message;
  readonly seconds: number;
}

/** One request over HTTP by curl in the VM. */
export async function guestPost(
  vm: Vm,
  message: unknown,
  options: { url?: string; headers?: readonly string[] } = {},
): Promise<HttpAnswer> {
  const body = Buffer.from(JSON.stringify(message)).toString("base64");
  const headers = [
    "content-type: application/json",
    "accept: application/json, text/event-stream",
    ...(options.headers ?? []),
  ].map((header) => `-H '${header}'`);
  const write = "-w '\\n%{http_code} %{time_total}'";
  const command = `printf %s '${body}' | base64 -d | curl -sS -m 60 ${headers.join(" ")} --data-binary @- ${write} ${options.url ?? HTTP_URL}`;
  const { stdout, stderr, exit_code } = await vm.exec({ command, timeout_secs: 90 });
  if (exit_code !== 0) throw new Error(`curl ended with ${exit_code}: ${stderr.data}`);
  const lines = stdout.data.trimEnd().split("\n");
  const [status, seconds] = (lines.pop() ?? "").split(" ").map(Number);
  const events = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
  const text = events.at(-1) ?? lines.join("\n");
  return {
    status: status ?? 0,
    seconds: seconds ?? 0,
    message: text.trim() === "" ? {} : (JSON.parse(text) as Message),
  };
}

/** Every text of a result's content. */
export function textOf({ result }: Message): string {
  const content = (result?.content ?? []) as readonly { text?: string }[];
  return content.map(({ text }) => text ?? "").join("");
}
