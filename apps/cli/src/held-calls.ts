import { randomBytes } from "node:crypto";
import type { AskInfo } from "@capsem/api";
import {
  type ByteSource,
  CapsemError,
  type RequestOptions,
  type Transport,
  type TransportSocket,
} from "@capsem/sdk";
import { createClient } from "@capsem/sdk/node";
import { HELD_LOOK_MS, HELD_MS, HELD_POLL_MS, REQUEST_MS, TIMER_MS_MAX } from "./limits.ts";

const TIME_LEFT = "x-capsem-time-left-ms";
/** We wait for an answer ourselves: an ask has no more time because of it. */
const OWN_ASKS = { "x-capsem-asks": "own" };

export interface HeldCalls {
  readonly transport: Transport;
  /** A rule holds one of our calls until a person has answered. */
  isHeld(): boolean;
}

/**
 * The same transport for calls that a rule may hold. Each carries a trace of this program, by which its ask is known
 * again. One that has no answer after a moment makes the events be looked at, and `tell` is called once for each ask;
 * what answers quickly costs nothing. While an ask waits, the call's own time limit does not run out.
 */
export function heldCalls(inner: Transport, tell: (ask: AskInfo) => void): HeldCalls {
  const watch = new Watch(inner, tell);
  const traced = { traceparent: `00-${watch.trace}-${randomBytes(8).toString("hex")}-01` };
  const transport: Transport = {
    request: async (method, path, options) => {
      const answered = watch.begin();
      try {
        const headers = { ...options.headers, ...traced };
        return await whileHeld(watch, `${method} ${path}`, { ...options, headers }, (patient) =>
          inner.request(method, path, patient),
        );
      } finally {
        answered();
      }
    },
    socket: async (path, protocols, options) =>
      watched(
        watch,
        await inner.socket(path, protocols, { ...options, headers: { ...options.headers, ...traced } }),
      ),
    close: () => inner.close(),
  };
  return { transport, isHeld: () => watch.holds };
}

/** The limit of the call ends it, unless an ask is why it waits: that has an end of its own. */
async function whileHeld<T>(
  watch: Watch,
  doing: string,
  options: RequestOptions,
  send: (patient: RequestOptions) => Promise<T>,
): Promise<T> {
  const { timeoutMs = REQUEST_MS, headers = {}, body, signal, mutates = true } = options;
  const longMs = Math.min(timeoutMs + HELD_MS, TIMER_MS_MAX);
  const left = headers[TIME_LEFT] === undefined ? {} : { [TIME_LEFT]: String(longMs) };
  const patient = { ...options, headers: { ...headers, ...left }, timeoutMs: longMs };
  if (timeoutMs >= TIMER_MS_MAX) return await send(patient);
  const late = new AbortController();
  const look = () => {
    if (watch.holds) timer = setTimeout(look, HELD_POLL_MS);
    else late.abort();
  };
  let timer = setTimeout(look, timeoutMs);
  let isOver = false;
  const again = () => {
    clearTimeout(timer);
    if (!isOver) timer = setTimeout(look, timeoutMs);
  };
  try {
    return await send({
      ...patient,
      ...(body === undefined ? {} : { body: withProgress(body, again) }),
      signal: signal === undefined ? late.signal : AbortSignal.any([signal, late.signal]),
    });
  } catch (thrown) {
    if (!late.signal.aborted || signal?.aborted === true) throw thrown;
    throw new CapsemError("timeout", `Cannot finish ${doing}: no answer within ${timeoutMs} ms`, {
      outcome: mutates ? "unknown" : "none",
    });
  } finally {
    isOver = true;
    clearTimeout(timer);
  }
}

/** While a stream is sent, the limit begins again with each part that is taken. */
function withProgress(body: ByteSource, progressed: () => void): ByteSource {
  if (body instanceof Uint8Array || body instanceof Blob) return body;
  async function* parts(): AsyncGenerator<Uint8Array> {
    for await (const part of body as AsyncIterable<Uint8Array>) {
      progressed();
      yield part;
      progressed();
    }
  }
  return parts();
}

/** A stream waits from its first message to the first one that comes back. */
function watched(watch: Watch, socket: TransportSocket): TransportSocket {
  let answered: (() => void) | null = null;
  let isAnswered = false;
  const end = () => {
    isAnswered = true;
    answered?.();
  };
  socket.closed.then(end);
  async function* receive() {
    for await (const message of socket.receive()) {
      end();
      yield message;
    }
    end();
  }
  return {
    ...socket,
    send: (bytes) => {
      if (!isAnswered) answered ??= watch.begin();
      return socket.send(bytes);
    },
    receive,
    close: (code) => {
      end();
      socket.close(code);
    },
  };
}

function lookingForOwn(inner: Transport): Transport {
  return {
    request: (method, path, options) => inner.request(method, path, options),
    socket: (path, protocols, options) =>
      inner.socket(path, protocols, { ...options, headers: { ...options.headers, ...OWN_ASKS } }),
    close: () => inner.close(),
  };
}

class Watch {
  readonly trace = randomBytes(16).toString("hex");
  readonly #inner: Transport;
  readonly #tell: (ask: AskInfo) => void;
  readonly #told = new Set<string>();
  readonly #pending = new Set<string>();
  #open = 0;
  #timer: NodeJS.Timeout | undefined;
  #following: AbortController | null = null;

  constructor(inner: Transport, tell: (ask: AskInfo) => void) {
    this.#inner = inner;
    this.#tell = tell;
  }

  get holds(): boolean {
    return this.#pending.size > 0;
  }

  begin(): () => void {
    this.#open += 1;
    this.#timer ??= setTimeout(() => void this.#follow(), HELD_LOOK_MS);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#open -= 1;
      if (this.#open > 0) return;
      clearTimeout(this.#timer);
      this.#timer = undefined;
      this.#following?.abort();
      this.#pending.clear();
    };
  }

  async #follow(): Promise<void> {
    const following = new AbortController();
    this.#following = following;
    try {
      const client = createClient(lookingForOwn(this.#inner));
      for await (const event of client.events({ signal: following.signal })) {
        if (event.type === "ask") this.#look(event.ask);
        else if (event.type === "hello" || event.type === "lagged") event.asks.forEach(this.#look);
      }
    } catch {
      // The call itself tells of a service that is gone; without events it waits and says nothing.
    }
  }

  readonly #look = (ask: AskInfo): void => {
    if (this.#open === 0 || ask.trace_id?.includes(this.trace) !== true) return;
    if (ask.state !== "pending") {
      this.#pending.delete(ask.id);
      return;
    }
    this.#pending.add(ask.id);
    if (this.#told.has(ask.id)) return;
    this.#told.add(ask.id);
    this.#tell(ask);
  };
}
