import { isUtf8 } from "node:buffer";
import { Failure } from "@capsem/base";
import {
  type Envelope,
  errorText,
  idKeyOf,
  itemsOf,
  memberOf,
  NOTIFICATIONS,
  type NotificationEnvelope,
  notificationText,
  type RequestEnvelope,
  RPC_CODES,
  readEnvelope,
  resultText,
  shortened,
  withMember,
} from "@capsem/mcp-protocol";
import { UPSTREAM_LIMITS } from "../limits.ts";
import { byteText, type Message, textOf } from "../message.ts";
import { rude } from "./failure.ts";
import { type ClientAnswers, isNews, type OpenCall, type Outcome } from "./open-call.ts";

export type Changed = "tools" | "resources" | "prompts";

/** What a server says that is no answer. */
export interface ServerTold {
  changed(what: Changed): void;
  /** A resource that somebody subscribed to. */
  updated(uri: string): void;
  /** A log message that belongs to no call: its params. */
  log(paramsText: string): void;
}

export interface InboxOptions {
  readonly told: ServerTold;
  /** Sends a message of ours: an answer to a request of the server. Never rejects. */
  readonly post: (text: string) => void;
  /** Whether a server of this era may ask its client; the requests of one that may not are dropped. */
  readonly mayAsk: boolean;
  /** All that the server says comes on one stream (HTTP+SSE): what belongs to a call must be guessed. */
  readonly isShared: boolean;
}

const CHANGES: ReadonlyMap<string, Changed> = new Map<string, Changed>([
  [NOTIFICATIONS.toolsChanged, "tools"],
  [NOTIFICATIONS.resourcesChanged, "resources"],
  [NOTIFICATIONS.promptsChanged, "prompts"],
]);

const ROOTS = "roots/list";

/** Requests of a server for whoever its call is made for. */
const ASKS: ReadonlyMap<string, keyof ClientAnswers> = new Map([
  ["sampling/createMessage", "sampling"],
  ["elicitation/create", "elicitation"],
  [ROOTS, "roots"],
]);

/** The messages of one session, to where they belong. `own` is the call whose stream one came on. */
export class Inbox {
  readonly #options: InboxOptions;
  readonly #calls = new Map<string, OpenCall>();
  #lastId = 0;

  constructor(options: InboxOptions) {
    this.#options = options;
  }

  get openCount(): number {
    return this.#calls.size;
  }

  /** Gives it the id that it has here. To be removed when it is over. */
  add(call: OpenCall, whenCancelled: () => void): void {
    this.#lastId += 1;
    call.begin(String(this.#lastId), whenCancelled);
    this.#calls.set(call.idText, call);
  }

  remove(call: OpenCall): void {
    this.#calls.delete(call.idText);
  }

  /** Ends all that is open: the session is over. */
  failAll(failure: () => Failure): void {
    for (const call of [...this.#calls.values()]) call.lose(failure());
  }

  /** Resolves when a message of a call's own stream is taken. Throws "upstream_failed" where it is none. */
  async receive(message: Message, own: OpenCall | null): Promise<void> {
    try {
      if (typeof message !== "string" && this.#answeredLarge(message, own)) return;
      const text = textOf(message);
      // The revision of March 2025 let a server put several into one.
      const batch = /^\s*\[/.test(text) ? itemsOf(text) : null;
      if (batch === null) await this.#take(readEnvelope(text), text, own);
      else for (const item of batch) await this.#take(readEnvelope(item), item, own);
    } catch (thrown) {
      const isMessage = thrown instanceof Failure && /^(parse_error|invalid_request)$/.test(thrown.kind);
      if (!isMessage) throw thrown;
      throw rude(`sends what is no message (${thrown.message})`, { cause: thrown });
    }
  }

  /** An answer that stays bytes. False: it is none, or of several messages, or no UTF-8: as text it can be mended. */
  #answeredLarge(bytes: Uint8Array, own: OpenCall | null): boolean {
    if (!isUtf8(bytes)) return false;
    const short = shortened(bytes, UPSTREAM_LIMITS.literalCharsMax);
    const text = byteText(short?.bytes ?? bytes);
    if (/^\s*\[/.test(text)) return false;
    const envelope = readEnvelope(text);
    if (envelope.kind !== "result" && envelope.kind !== "error") return false;
    const call = envelope.idText === null ? own : this.#answered(envelope.idText, own);
    const isResult = envelope.kind === "result";
    const from = isResult ? envelope.resultFrom : envelope.errorFrom;
    const to = from + (isResult ? envelope.resultText : envelope.errorText).length;
    const span =
      short === null ? bytes.subarray(from, to) : bytes.subarray(short.placeOf(from), short.placeOf(to));
    call?.settle(new LargeOutcome(envelope.kind, span), own === null);
    return true;
  }

  async #take(envelope: Envelope, text: string, own: OpenCall | null): Promise<void> {
    switch (envelope.kind) {
      case "result": {
        const call = this.#answered(envelope.idText, own);
        call?.settle({ kind: "result", text: envelope.resultText }, own === null);
        return;
      }
      case "error": {
        const call = envelope.idText === null ? own : this.#answered(envelope.idText, own);
        call?.settle({ kind: "error", text: envelope.errorText }, own === null);
        return;
      }
      case "request":
        this.#asked(envelope, text, own);
        return;
      case "notification":
        await this.#notified(envelope, text, own);
    }
  }

  /** On a call's own stream only its own answer is one: a second, or another's, is nobody's. */
  #answered(idText: string, own: OpenCall | null): OpenCall | undefined {
    const id = plainId(idText);
    const call = this.#calls.get(id);
    return own === null || own === call ? call : undefined;
  }

  #asked({ idText, method }: RequestEnvelope, text: string, own: OpenCall | null): void {
    if (!this.#options.mayAsk) return;
    const answers = ASKS.get(method);
    const call = own ?? this.#lone(method);
    const canAnswer = answers !== undefined && call?.request.client[answers] === true;
    const isShort = idText.length <= UPSTREAM_LIMITS.idCharactersMax;
    if (canAnswer && isShort && call.ask(idKeyOf(idText), text)) return;
    this.#options.post(ownAnswer(idText, method));
  }

  async #notified(envelope: NotificationEnvelope, text: string, own: OpenCall | null): Promise<void> {
    const { method, paramsText } = envelope;
    const { told, isShared } = this.#options;
    const what = CHANGES.get(method);
    if (what !== undefined) {
      told.changed(what);
      return;
    }
    switch (method) {
      case NOTIFICATIONS.progress:
        return this.#progressed(paramsText, own);
      case NOTIFICATIONS.resourceUpdated: {
        const uri = stringOf(paramsText, "uri");
        if (uri !== undefined && uri.length <= UPSTREAM_LIMITS.uriCharactersMax) told.updated(uri);
        return;
      }
      case NOTIFICATIONS.message: {
        const call = own ?? (isShared ? this.#lone() : null);
        if (call === null) told.log(paramsText ?? "{}");
        else await this.#deliver(call, text, own);
        return;
      }
      case NOTIFICATIONS.subscriptionsAcknowledged:
        return;
      default: {
        const call = own ?? this.#lone();
        if (call !== null) await this.#deliver(call, text, own);
      }
    }
  }

  async #progressed(paramsText: string | undefined, own: OpenCall | null): Promise<void> {
    const token = paramsText === undefined ? undefined : memberOf(paramsText, "progressToken");
    const call = token === undefined ? undefined : this.#calls.get(plainId(token));
    if (paramsText === undefined || call === undefined || call.tokenText === null) return;
    const theirs = withMember(paramsText, "progressToken", call.tokenText);
    await this.#deliver(call, notificationText(NOTIFICATIONS.progress, theirs), own);
  }

  async #deliver(call: OpenCall, text: string, own: OpenCall | null): Promise<void> {
    if (call === own) await call.notify(text);
    else call.offer(text);
  }

  /** The one call that it can belong to. Told news, a server asks for roots; whatever else it says is of other calls. */
  #lone(method?: string): OpenCall | null {
    let lone: OpenCall | null = null;
    for (const call of this.#calls.values()) {
      if (isNews(call.request.method) && method !== ROOTS) continue;
      if (lone !== null) return null;
      lone = call;
    }
    return lone;
  }
}

/** What its text is only when somebody asks for it. */
class LargeOutcome implements Outcome {
  readonly kind: Outcome["kind"];
  readonly bytes: Uint8Array;

  constructor(kind: Outcome["kind"], bytes: Uint8Array) {
    this.kind = kind;
    this.bytes = bytes;
  }

  get text(): string {
    return textOf(this.bytes);
  }
}

/** To what nobody is asked. */
function ownAnswer(idText: string, method: string): string {
  if (method === "ping") return resultText(idText, "{}");
  if (method === "elicitation/create") return resultText(idText, '{"action":"decline"}');
  return errorText(idText, RPC_CODES.methodNotFound, "Method not found");
}

/** Our ids are numbers; there are servers that answer with a string. */
function plainId(idText: string): string {
  return idKeyOf(idText).replaceAll('"', "");
}

function stringOf(objectText: string | undefined, name: string): string | undefined {
  const text = objectText === undefined ? undefined : memberOf(objectText, name);
  return text?.startsWith('"') === true ? (JSON.parse(text) as string) : undefined;
}
