import { type Deferred, defer, Failure, sleep, within } from "@capsem/base";
import { MODERN_REVISIONS, NOTIFICATIONS, requestText } from "@capsem/mcp-protocol";
import type { HttpResponse } from "@capsem/net";
import { EventStreamParser, readEvents } from "../event-stream.ts";
import { UPSTREAM_LIMITS } from "../limits.ts";
import { type Endpoint, mediaTypeOf } from "./endpoint.ts";
import { EVENT_STREAM, POST_HEADERS } from "./exchange.ts";
import { asUpstreamFailure, inBackground } from "./failure.ts";
import type { Inbox } from "./inbox.ts";
import { retryDelay } from "./legacy-http.ts";
import { type ModernEnvelope, modernParams } from "./params.ts";
import { StreamMeter } from "./stream-meter.ts";

export interface ListeningOptions {
  readonly endpoint: Endpoint;
  readonly inbox: Inbox;
  /** The session's life. */
  readonly signal: AbortSignal;
  readonly envelope: () => ModernEnvelope;
}

const METHOD = "subscriptions/listen";
const FILTERS = [
  ["tools.listChanged", "toolsListChanged"],
  ["prompts.listChanged", "promptsListChanged"],
  ["resources.listChanged", "resourcesListChanged"],
] as const;

/** The stream of changes of a server of 2026-07-28: asked for when there is something to hear, and again when it ends. */
export class Listening {
  readonly #options: ListeningOptions;
  readonly #uris = new Set<string>();
  readonly #meter = new StreamMeter(UPSTREAM_LIMITS.streamBytesMax);
  #flags: Readonly<Record<string, boolean>> = {};
  #current: AbortController | undefined;
  /** Of the last stream that was asked for. */
  #acknowledged: Promise<void> = Promise.resolve();
  #count = 0;

  constructor(options: ListeningOptions) {
    this.#options = options;
  }

  /** `capabilities` as `capabilityNames` has them. */
  start(capabilities: ReadonlySet<string>): void {
    const wanted = FILTERS.filter(([name]) => capabilities.has(name));
    this.#flags = Object.fromEntries(wanted.map(([, flag]) => [flag, true]));
    if (wanted.length > 0) this.#again();
  }

  /** Resolves when the server listens to it, or does not say so in time. False: too many. */
  async subscribe(uri: string, isWanted: boolean): Promise<boolean> {
    if (isWanted !== this.#uris.has(uri)) {
      if (isWanted && this.#uris.size >= UPSTREAM_LIMITS.subscriptionsMax) return false;
      if (isWanted) this.#uris.add(uri);
      else this.#uris.delete(uri);
      this.#again();
    }
    // Another filter may be asked for meanwhile: the server listens to this one when it listens to that.
    let last: Promise<void>;
    do {
      last = this.#acknowledged;
      await last;
    } while (last !== this.#acknowledged);
    return true;
  }

  /** With what is wanted now: the filter of a stream that is open cannot be changed. */
  #again(): void {
    this.#current?.abort(new Failure("cancelled", "another filter is asked for"));
    this.#acknowledged = Promise.resolve();
    if (this.#uris.size === 0 && Object.keys(this.#flags).length === 0) return;
    const current = new AbortController();
    this.#current = current;
    const { signal } = this.#options;
    const end = () => current.abort(signal.reason);
    if (signal.aborted) return;
    signal.addEventListener("abort", end, { once: true });
    const acknowledged = defer<void>();
    inBackground(
      this.#run(current.signal, acknowledged).finally(() => {
        acknowledged.resolve();
        signal.removeEventListener("abort", end);
      }),
    );
    this.#acknowledged = this.#inTime(acknowledged.promise);
  }

  async #inTime(acknowledged: Promise<void>): Promise<void> {
    const late = () => new Failure("timeout", "it does not acknowledge the subscription");
    try {
      await within(acknowledged, UPSTREAM_LIMITS.noticeTimeoutMs, late, this.#options.signal);
    } catch (thrown) {
      // What changes meanwhile is not heard; what changes later is, if the server is only slow.
      if (!(thrown instanceof Failure)) throw thrown;
    }
  }

  async #run(signal: AbortSignal, acknowledged: Deferred<void>): Promise<void> {
    // Its own: of the stream before it something may be half read.
    const parser = new EventStreamParser();
    for (let failures = 0; ; ) {
      const heard = await this.#once(parser, signal, acknowledged);
      acknowledged.resolve();
      if (heard === "none") return;
      failures = heard === "ended" ? 0 : failures + 1;
      const delayMs = retryDelay(parser) * 2 ** Math.min(failures, 10);
      await sleep(Math.min(delayMs, UPSTREAM_LIMITS.retryMsMax), signal);
      parser.restart();
    }
  }

  async #once(
    parser: EventStreamParser,
    signal: AbortSignal,
    acknowledged: Deferred<void>,
  ): Promise<"none" | "ended" | "failed"> {
    const { endpoint, inbox } = this.#options;
    let response: HttpResponse | undefined;
    try {
      response = await endpoint.send({ ...this.#request(), signal, timeoutMs: null });
      if (response.status !== 200 || mediaTypeOf(response) !== EVENT_STREAM) {
        return response.status < 500 ? "none" : "failed";
      }
      const count = (bytes: number) => this.#meter.count(bytes);
      const reading = { body: response.body, parser, budget: endpoint.budget, count };
      for await (const { type, data } of readEvents(reading)) {
        if (type !== "message") continue;
        if (typeof data === "string" && data.includes(NOTIFICATIONS.subscriptionsAcknowledged))
          acknowledged.resolve();
        await inbox.receive(data, null);
      }
      return "ended";
    } catch (thrown) {
      asUpstreamFailure(thrown);
      return "failed";
    } finally {
      response?.body.cancel();
    }
  }

  #request() {
    this.#count += 1;
    const notifications =
      this.#uris.size === 0 ? this.#flags : { ...this.#flags, resourceSubscriptions: [...this.#uris] };
    const { text } = modernParams(JSON.stringify({ notifications }), "0", this.#options.envelope());
    const headers: [string, string][] = [
      ...POST_HEADERS.map(([name, value]): [string, string] => [name, value]),
      ["mcp-protocol-version", MODERN_REVISIONS[0]],
      ["mcp-method", METHOD],
    ];
    return {
      method: "POST" as const,
      headers,
      message: requestText(`"listen-${this.#count}"`, METHOD, text),
    };
  }
}
