import {
  type Envelope,
  errorText,
  hasMethod,
  idKeyOf,
  META_KEYS,
  negotiate,
  notificationText,
  type RequestEnvelope,
  readEnvelope,
  requestText,
  resultText,
} from "@capsem/mcp-protocol";
import type { Client, Conversation, Origin, Rail } from "../../conversation.ts";

type Reserved = Parameters<Rail["reserved"]>[0];
type Json = { readonly [key: string]: unknown };

export interface Received {
  readonly client: Client;
  readonly message: Envelope;
  readonly text: string;
  readonly processName: string | null;
}

/** A rail that does what a tool's name says: enough of a server for real clients, and a record of all that came. */
export class ScriptedRail implements Rail {
  readonly clients: Client[] = [];
  readonly received: Received[] = [];
  readonly reservations: Reserved[] = [];
  /** Clients whose conversations were closed. */
  readonly closed: Client[] = [];
  /** Requests that run, as `taintKey id`. */
  readonly running = new Set<string>();
  readonly cancelled: string[] = [];

  open(client: Client): Conversation {
    this.clients.push(client);
    return new ScriptedConversation(this, client);
  }

  reserved(request: Reserved): void {
    this.reservations.push(request);
  }

  methods(): string[] {
    return this.received.map(({ message }) => ("method" in message ? message.method : message.kind));
  }
}

class ScriptedConversation implements Conversation {
  readonly #rail: ScriptedRail;
  readonly #client: Client;
  readonly #calls = new Map<string, AbortController>();
  /** Of all that run, also where two have one id. */
  readonly #stops = new Set<AbortController>();
  readonly #asked = new Map<string, (answer: Envelope) => void>();
  #asks = 0;

  constructor(rail: ScriptedRail, client: Client) {
    this.#rail = rail;
    this.#client = client;
  }

  async receive(text: string, origin: Origin): Promise<void> {
    const message = readEnvelope(text);
    this.#rail.received.push({ client: this.#client, message, text, processName: origin.processName });
    if (message.kind === "result" || message.kind === "error") {
      this.#asked.get(idKeyOf(message.idText ?? "null"))?.(message);
      return;
    }
    if (message.kind === "notification") {
      if (message.method !== "notifications/cancelled") return;
      const { requestId } = JSON.parse(message.paramsText ?? "{}") as { requestId: unknown };
      this.#calls.get(JSON.stringify(requestId))?.abort();
      return;
    }
    const stop = new AbortController();
    this.#calls.set(idKeyOf(message.idText), stop);
    this.#stops.add(stop);
    const name = `${this.#client.taintKey} ${message.idText}`;
    this.#rail.running.add(name);
    const answer = await this.#answer(message, stop.signal).catch((thrown: Error) =>
      errorText(message.idText, -32_603, thrown.message),
    );
    this.#rail.running.delete(name);
    this.#stops.delete(stop);
    if (this.#calls.get(idKeyOf(message.idText)) === stop) this.#calls.delete(idKeyOf(message.idText));
    if (stop.signal.aborted) this.#rail.cancelled.push(name);
    else await this.#client.send(answer, message.idText);
  }

  close(): void {
    this.#rail.closed.push(this.#client);
    for (const stop of this.#stops) stop.abort();
  }

  async #answer(request: RequestEnvelope, stopped: AbortSignal): Promise<string> {
    const params = JSON.parse(request.paramsText ?? "{}") as Json;
    const meta = (params._meta ?? {}) as Json;
    const era = meta[META_KEYS.protocolVersion] === undefined ? "legacy" : "modern";
    const { idText, method } = request;
    if (!hasMethod(era, method)) return errorText(idText, -32_601, `no method ${method}`);
    const extra = era === "modern" ? { resultType: "complete" } : {};
    const result = (value: Json) => resultText(idText, JSON.stringify({ ...extra, ...value }));
    const capabilities = { tools: { listChanged: true }, logging: {} };
    switch (method) {
      case "initialize":
        return params.protocolVersion === "refuse me"
          ? errorText(idText, -32_602, "refused")
          : result({
              protocolVersion: negotiate(String(params.protocolVersion)),
              capabilities,
              serverInfo: { name: "scripted", version: "1" },
            });
      case "server/discover":
        return result({
          supportedVersions: ["2026-07-28"],
          capabilities: { tools: {} },
          ttlMs: 0,
          cacheScope: "private",
        });
      case "tools/list":
        return result({ tools: [{ name: "echo", inputSchema: { type: "object" } }], ...cache(era) });
      case "tools/call":
        return await this.#call(request, params, meta, stopped, result);
      case "subscriptions/listen": {
        const note = notificationText("notifications/subscriptions/acknowledged", '{"notifications":{}}');
        await this.#client.send(note, idText);
        await once(stopped);
        return "";
      }
      default:
        return result({});
    }
  }

  async #call(
    request: RequestEnvelope,
    params: Json,
    meta: Json,
    stopped: AbortSignal,
    result: (value: Json) => string,
  ): Promise<string> {
    const { idText } = request;
    const args = (params.arguments ?? {}) as Json;
    const text = (value: string) => result({ content: [{ type: "text", text: value }] });
    switch (params.name) {
      case "progress": {
        const progress = { progressToken: meta.progressToken, progress: 1, total: 2 };
        const note = notificationText("notifications/progress", JSON.stringify(progress));
        return text(String(await this.#client.send(note, idText)));
      }
      case "sample": {
        const asked = this.#ask("sampling/createMessage", '{"messages":[],"maxTokens":1}', idText);
        const answer = await Promise.race([asked, once(stopped).then(() => undefined)]);
        return text(answer === undefined ? "no way" : JSON.stringify(answer));
      }
      case "hang":
        await once(stopped);
        return "";
      case "large":
        return text("x".repeat(Number(args.chars)));
      case "announce": {
        const note = notificationText("notifications/tools/list_changed");
        return text(String(await this.#client.send(note, null)));
      }
      case "raw":
        return resultText(idText, String(args.raw));
      default:
        return text(String(args.text));
    }
  }

  async #ask(method: string, params: string, about: string): Promise<Envelope | undefined> {
    this.#asks += 1;
    const id = `"ask-${this.#asks}"`;
    const answered = new Promise<Envelope>((resolve) => this.#asked.set(id, resolve));
    const isOut = await this.#client.send(requestText(id, method, params), about);
    return isOut ? await answered : undefined;
  }
}

function cache(era: string): Json {
  return era === "modern" ? { ttlMs: 0, cacheScope: "private" } : {};
}

function once(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
