// A client of the rail: what it is sent is looked at as the JSON that it is.
import { type Client, type Conversation, type LargeMessage, wholeText } from "../conversation.ts";

export interface Message {
  readonly id?: string | number | null;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: Record<string, unknown>;
  readonly error?: {
    readonly code: number;
    readonly message: string;
    readonly data?: Record<string, unknown>;
  };
}

export interface TestClientOptions {
  readonly transport?: Client["transport"];
  readonly taintKey?: string;
  readonly protocolHint?: string | null;
  readonly processName?: string | null;
  readonly paramHeaders?: Readonly<Record<string, string>>;
  /** What it answers to requests of servers; by default it cannot be reached by any. */
  readonly answer?: (
    method: string,
    params: unknown,
  ) => Promise<Record<string, unknown>> | Record<string, unknown>;
}

let keys = 0;

export const MODERN = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": { name: "modern", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": { elicitation: {}, sampling: {}, roots: {} },
};

export class TestClient implements Client {
  readonly transport: Client["transport"];
  readonly taintKey: string;
  readonly protocolHint: string | null;
  readonly processName: string | null;
  readonly paramHeaders?: ReadonlyMap<string, string>;
  readonly gone: AbortSignal;
  /** As they came. */
  readonly texts: string[] = [];
  /** What each belonged to. */
  readonly abouts: (string | null)[] = [];
  readonly #gone = new AbortController();
  readonly #answer: TestClientOptions["answer"];
  readonly #waiting = new Map<string, (message: Message) => void>();
  #conversation: Conversation | undefined;
  #last = 0;

  constructor(options: TestClientOptions) {
    keys += 1;
    this.transport = options.transport ?? "framed";
    this.taintKey = options.taintKey ?? `test:${keys}`;
    this.protocolHint = options.protocolHint ?? null;
    this.processName = options.processName ?? "agent";
    if (options.paramHeaders !== undefined) {
      this.paramHeaders = new Map(Object.entries(options.paramHeaders));
    }
    this.gone = this.#gone.signal;
    this.#answer = options.answer;
  }

  attach(conversation: Conversation): void {
    this.#conversation = conversation;
  }

  async send(given: string | LargeMessage, about: string | null): Promise<boolean> {
    if (this.gone.aborted) return false;
    const message = wholeText(given);
    const parsed = JSON.parse(message) as Message;
    const isRequest = parsed.method !== undefined && parsed.id !== undefined;
    if (isRequest && this.#answer === undefined) return false;
    this.texts.push(message);
    this.abouts.push(about);
    if (isRequest) void this.#answerTo(parsed);
    else if (parsed.method === undefined) this.#waiting.get(JSON.stringify(parsed.id))?.(parsed);
    return true;
  }

  get messages(): Message[] {
    return this.texts.map((text) => JSON.parse(text) as Message);
  }

  of(method: string): Message[] {
    return this.messages.filter((message) => message.method === method);
  }

  leave(): void {
    this.#gone.abort();
    this.#conversation?.close();
  }

  receive(text: string): Promise<void> {
    return this.#conversation?.receive(text, { processName: this.processName }) ?? Promise.resolve();
  }

  async request(method: string, params?: unknown, id: string | number = this.nextId()): Promise<Message> {
    const answer = new Promise<Message>((resolve) => this.#waiting.set(JSON.stringify(id), resolve));
    await this.receive(
      JSON.stringify({ jsonrpc: "2.0", id, method, ...(params === undefined ? {} : { params }) }),
    );
    return answer;
  }

  /** Without waiting for what comes of it. */
  begin(method: string, params: unknown, id: string | number = this.nextId()): Promise<void> {
    return this.receive(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
  }

  notify(method: string, params?: unknown): Promise<void> {
    return this.receive(
      JSON.stringify({ jsonrpc: "2.0", method, ...(params === undefined ? {} : { params }) }),
    );
  }

  async initialize(capabilities: unknown = {}, protocolVersion = "2025-11-25"): Promise<Message> {
    const clientInfo = { name: "test", version: "1" };
    const answer = await this.request("initialize", { protocolVersion, capabilities, clientInfo });
    await this.notify("notifications/initialized");
    return answer;
  }

  async call(name: string, args?: unknown, more: Record<string, unknown> = {}): Promise<Message> {
    return this.request("tools/call", { name, ...(args === undefined ? {} : { arguments: args }), ...more });
  }

  nextId(): number {
    this.#last += 1;
    return this.#last;
  }

  async #answerTo({ id, method = "", params }: Message): Promise<void> {
    const answer = await this.#answer?.(method, params);
    await this.receive(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
  }
}
