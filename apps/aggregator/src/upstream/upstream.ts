import type { ProxyServer } from "@capsem/api";
import { Failure, Slots, within } from "@capsem/base";
import type { HttpClient } from "@capsem/net";
import { CATALOG_LIMITS, UPSTREAM_LIMITS } from "../limits.ts";
import { ByteBudget } from "./byte-budget.ts";
import { type Catalog, readCatalog } from "./catalog.ts";
import { Circuit, type CircuitPowers } from "./circuit.ts";
import { Endpoint } from "./endpoint.ts";
import { inBackground, isOurs, isUnreachable, rude, withServer } from "./failure.ts";
import type { Changed } from "./inbox.ts";
import { type CallRequest, type CallSink, OpenCall } from "./open-call.ts";
import { openSession } from "./open-session.ts";
import { notify, respond, type ServerFacts, type Session, type Way } from "./session.ts";

export type Health = "idle" | "connecting" | "ok" | "failed";

/** What whoever uses the servers is told of them. Nothing here waits. */
export interface UpstreamEvents {
  changed(server: string, what: Changed | "resource", uri?: string): void;
  health(server: string, state: Health, error: string | null): void;
  log(server: string, paramsText: string): void;
}

export interface UpstreamOptions extends CircuitPowers {
  readonly server: ProxyServer;
  readonly http: HttpClient;
  readonly events: UpstreamEvents;
}

export type ServerCatalog = ServerFacts & Catalog;

/** A catalogue that is being read, and of when its lists are. */
interface Reading {
  readonly lists: Promise<ServerCatalog>;
  epoch: number;
}

/** A call that is under way, and how the client answers what the server asks meanwhile. */
export interface StartedCall {
  readonly outcome: OpenCall["outcome"];
  respond(text: string): void;
  /** The client's progress with it. */
  notify(text: string): void;
}

/** One declared server: its session, opened when it is first needed; its health; what it offers. */
export class Upstream {
  readonly server: ProxyServer;
  readonly #options: UpstreamOptions;
  readonly #places = new Slots(UPSTREAM_LIMITS.callsMax, UPSTREAM_LIMITS.callsWaitingMax);
  readonly #budget = new ByteBudget(UPSTREAM_LIMITS.heldBytesMax);
  readonly #circuit: Circuit;
  readonly #life = new AbortController();
  readonly #closing = new Set<Promise<void>>();
  #way: Way | null = null;
  #session: Session | undefined;
  #opening: Promise<Session> | undefined;
  #hadSession = false;
  #health: Health = "idle";
  #healthError: string | null = null;
  #catalog: Catalog | undefined;
  #reading: Reading | undefined;
  /** Grows with each change of a list: what was read before is old. */
  #epoch = 0;
  readonly #calls = new Set<OpenCall>();
  #isRetired = false;
  #gone: () => void = () => undefined;

  constructor(options: UpstreamOptions) {
    this.server = options.server;
    this.#options = options;
    this.#circuit = new Circuit(options);
  }

  /** Calls under way, and bytes held for them: for tests that nothing is left. */
  get load(): { readonly calls: number; readonly bytes: number } {
    return { calls: this.#calls.size, bytes: this.#budget.heldBytes };
  }

  /** `caller` aborts when the call is to be cancelled. Failures of the outcome name the server. */
  start(request: CallRequest, sink: CallSink, caller: AbortSignal): StartedCall {
    const call = new OpenCall(request, sink, caller);
    inBackground(this.#run(call));
    return {
      outcome: call.outcome.catch((thrown: unknown) => {
        throw withServer(this.server.name, thrown);
      }),
      respond: (text) => respond(call, text),
      notify: (text) => notify(call, text),
    };
  }

  /** From memory, unless it is wanted anew or the server said that it changed. */
  async catalog(refresh: boolean, signal: AbortSignal): Promise<ServerCatalog> {
    try {
      const session = this.#session;
      if (!refresh && session !== undefined && !session.isOver && this.#catalog !== undefined) {
        return { ...session.facts, ...this.#catalog };
      }
      // What a list says that has changed since is not waited for.
      const reading = this.#reading?.epoch === this.#epoch ? this.#reading : this.#read();
      const late = () => new Failure("timeout", `it did not list all within ${CATALOG_LIMITS.timeoutMs} ms`);
      return await within(reading.lists, CATALOG_LIMITS.timeoutMs, late, signal);
    } catch (thrown) {
      throw withServer(this.server.name, thrown);
    }
  }

  /** Nothing new is asked of it; it is closed when the last call is over, and `gone` is told. */
  retire(gone: () => void): void {
    this.#isRetired = true;
    this.#gone = gone;
    if (this.#calls.size === 0) inBackground(this.close());
  }

  /** Ends its calls, and its session at the server. */
  async close(): Promise<void> {
    this.#isRetired = true;
    this.#life.abort(new Failure("cancelled", "it is no longer declared"));
    for (const call of this.#calls) call.cancel(rude("is no longer declared as it was"));
    const session = this.#session;
    this.#session = undefined;
    if (session !== undefined) this.#end(session);
    await Promise.all(this.#closing);
    this.#gone();
  }

  async #run(call: OpenCall): Promise<void> {
    this.#calls.add(call);
    let leave: (() => void) | undefined;
    try {
      const place = this.#places.take(call.signal);
      if (place === null)
        throw new Failure("upstream_failed", "too many calls wait for it", { retryable: true });
      leave = await place;
      await this.#perform(call);
      if (call.isAnswered) this.#well();
    } catch (thrown) {
      call.fail(thrown as Error);
      if (thrown instanceof Failure) this.#trouble(thrown);
      else throw thrown;
    } finally {
      leave?.();
      this.#calls.delete(call);
      if (this.#isRetired && this.#calls.size === 0) inBackground(this.close());
    }
  }

  async #perform(call: OpenCall): Promise<void> {
    this.#circuit.check();
    await this.#withSession(call.signal, (session) => {
      call.via = session;
      return session.perform(call);
    });
  }

  /** Once more, if the server ended the session: what was sent with it was then certainly not done. */
  async #withSession<T>(signal: AbortSignal, work: (session: Session) => Promise<T>): Promise<T> {
    try {
      return await work(await this.#ready(signal));
    } catch (thrown) {
      if (!(thrown instanceof Failure) || thrown.kind !== "session_expired") throw thrown;
      return work(await this.#ready(signal));
    }
  }

  /** The one session. Who waits for it may give up; it is opened all the same. */
  #ready(signal: AbortSignal): Promise<Session> | Session {
    const session = this.#session;
    if (session !== undefined && !session.isOver) return session;
    this.#opening ??= this.#open().finally(() => {
      this.#opening = undefined;
    });
    const { openTimeoutMs } = UPSTREAM_LIMITS;
    const late = () => new Failure("timeout", `it opened no session within ${openTimeoutMs} ms`);
    return within(this.#opening, openTimeoutMs, late, signal);
  }

  async #open(): Promise<Session> {
    const { server, http } = this.#options;
    const old = this.#session;
    this.#session = undefined;
    if (old !== undefined) this.#end(old);
    this.#say("connecting", null);
    const limit = this.#limit(UPSTREAM_LIMITS.openTimeoutMs, "it took too long to open a session");
    try {
      const endpoint = new Endpoint({ server: server.name, url: server.url, http, budget: this.#budget });
      const session = await openSession({ server, endpoint, told: this.#told() }, this.#way, limit.signal);
      if (this.#life.signal.aborted) {
        this.#end(session);
        throw this.#life.signal.reason;
      }
      this.#opened(session);
      return session;
    } catch (thrown) {
      if (thrown instanceof Failure && !isOurs(thrown)) this.#circuit.failed(thrown);
      if (thrown instanceof Failure) this.#say("failed", thrown.message);
      throw thrown;
    } finally {
      limit.end();
    }
  }

  #opened(session: Session): void {
    this.#session = session;
    this.#way = session.way;
    this.#well();
    this.#catalog = undefined;
    // It may be another one by now: what it offered before says nothing.
    if (this.#hadSession) for (const what of ["tools", "resources", "prompts"] as const) this.#changed(what);
    this.#hadSession = true;
  }

  #told() {
    const { events, server } = this.#options;
    return {
      changed: (what: Changed) => this.#changed(what),
      updated: (uri: string) => events.changed(server.name, "resource", uri),
      log: (paramsText: string) => events.log(server.name, paramsText),
    };
  }

  #changed(what: Changed): void {
    this.#epoch += 1;
    this.#catalog = undefined;
    this.#options.events.changed(this.server.name, what);
  }

  #read(): Reading {
    const lists = this.#readCatalog((epoch) => {
      reading.epoch = epoch;
    }).finally(() => {
      if (this.#reading === reading) this.#reading = undefined;
    });
    const reading: Reading = { epoch: this.#epoch, lists };
    this.#reading = reading;
    return reading;
  }

  /** `begun` is told of which epoch the lists are. */
  async #readCatalog(begun: (epoch: number) => void): Promise<ServerCatalog> {
    this.#circuit.check();
    const limit = this.#limit(CATALOG_LIMITS.timeoutMs, "it took too long to list all");
    try {
      return await this.#withSession(limit.signal, async (session) => {
        const epoch = this.#epoch;
        begun(epoch);
        const catalog = await readCatalog(session, limit.signal);
        if (epoch === this.#epoch) this.#catalog = catalog;
        this.#well();
        return { ...session.facts, ...catalog };
      });
    } catch (thrown) {
      if (thrown instanceof Failure) {
        this.#trouble(thrown);
        // Nobody can use what cannot be listed, whatever else it answers.
        if (!isOurs(thrown)) this.#say("failed", thrown.message);
      }
      throw thrown;
    } finally {
      limit.end();
    }
  }

  /** Aborts after a while, and when the server is no longer declared. To be ended. */
  #limit(timeoutMs: number, words: string): { readonly signal: AbortSignal; end(): void } {
    const controller = new AbortController();
    const life = this.#life.signal;
    const onEnd = () => controller.abort(life.reason);
    const timer = setTimeout(() => controller.abort(new Failure("timeout", words)), timeoutMs);
    life.addEventListener("abort", onEnd, { once: true });
    if (life.aborted) onEnd();
    return {
      signal: controller.signal,
      end() {
        clearTimeout(timer);
        life.removeEventListener("abort", onEnd);
      },
    };
  }

  /** A call may fail by what it asks; the server is in trouble when it cannot be reached. */
  #trouble(failure: Failure): void {
    if (failure.detail === "deadline" || isOurs(failure) || !isUnreachable(failure)) return;
    this.#circuit.failed(failure);
    this.#say("failed", failure.message);
  }

  #well(): void {
    this.#circuit.succeeded();
    if (this.#health !== "ok") this.#say("ok", null);
  }

  #say(state: Health, error: string | null): void {
    if (this.#isRetired || (state === this.#health && error === this.#healthError)) return;
    this.#health = state;
    this.#healthError = error;
    this.#options.events.health(this.server.name, state, error);
  }

  #end(session: Session): void {
    const ended: Promise<void> = session.close().finally(() => this.#closing.delete(ended));
    this.#closing.add(ended);
    inBackground(ended);
  }
}
