import { type Deferred, defer, Failure, ignore, within } from "@capsem/base";
import type { GuestBody, GuestMessage, HostMessage } from "@capsem/wire";
import { OWNER_LIMITS } from "./limits.ts";

export type GuestAnswer = Extract<GuestMessage, { name: "ack" | "job_started" | "file_answer" }>;

/** Host messages that carry an id and get exactly one answer. */
export type GuestRequest = Exclude<HostMessage, { name: "ping" | "host_ack" }>;
type BodyWithoutId<M> = M extends { body: infer B } ? Omit<B, "id"> : never;

/** Correlates control requests with their answers: one deadline each, and all end when the guest is lost. */
export class GuestRequests {
  readonly #pending = new Map<string, Deferred<GuestAnswer>>();
  #send: ((message: HostMessage) => Promise<void>) | null = null;
  #lost: Failure | null = null;
  #counter = 0;
  readonly #prefix: string;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  /** A control stream stands: requests go there from now on. */
  connect(send: (message: HostMessage) => Promise<void>): void {
    this.#send = send;
    this.#lost = null;
  }

  /** Ends every request that waits, and refuses new ones until the next `connect`. */
  disconnect(cause: Failure): void {
    this.#send = null;
    this.#lost = cause;
    for (const pending of this.#pending.values()) pending.reject(cause);
    this.#pending.clear();
  }

  newId(): string {
    this.#counter += 1;
    return `${this.#prefix}${this.#counter}`;
  }

  /** Sends one request; `id` is given where its bytes already ride under it. */
  async ask<N extends GuestRequest["name"]>(
    name: N,
    body: BodyWithoutId<Extract<GuestRequest, { name: N }>>,
    options: { id?: string; timeoutMs?: number; signal?: AbortSignal } = {},
  ): Promise<GuestAnswer> {
    const send = this.#send;
    if (send === null)
      throw this.#lost ?? new Failure("wrong_state", "Cannot reach the guest agent: it is not connected");
    const id = options.id ?? this.newId();
    const answer = defer<GuestAnswer>();
    ignore(answer.promise);
    this.#pending.set(id, answer);
    const timeoutMs = options.timeoutMs ?? OWNER_LIMITS.requestTimeoutMs;
    try {
      await send({ name, body: { ...body, id } } as HostMessage);
      return await within(
        answer.promise,
        timeoutMs,
        () =>
          new Failure(
            "unresponsive",
            `Cannot ${name.replaceAll("_", " ")}: the guest agent did not answer in ${timeoutMs} ms`,
          ),
        options.signal,
      );
    } finally {
      this.#pending.delete(id);
    }
  }

  /** True when the message was an answer to one of ours. */
  settle(message: GuestMessage): boolean {
    switch (message.name) {
      case "ack":
      case "job_started":
      case "file_answer":
        this.#pending.get(message.body.id)?.resolve(message);
        return true;
      case "error":
        this.#pending.get(message.body.id)?.reject(failureOf(message.body));
        return true;
      default:
        return false;
    }
  }
}

function failureOf(body: GuestBody<"error">): Failure {
  return new Failure(body.kind, body.message);
}
