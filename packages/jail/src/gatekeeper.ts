import { assert, defer, type Failure } from "@capsem/base";
import type { Native, Received } from "@capsem/native";
import { type JailFailureKind, jailFailure } from "./error.ts";
import { GATEKEEPER_ANSWER_BYTES, GATEKEEPER_QUEUE_MAX, GATEKEEPER_TIMEOUT_MS } from "./limits.ts";

/**
 * The gateway's side of its pair with `capsem-gatekeeper`. Descriptors that this returns are the caller's to close;
 * a stream is made of one by `new net.Socket({ fd })`, which then closes it.
 */
export interface Gatekeeper {
  /** A fresh connection to the service. */
  connectService(options?: { signal?: AbortSignal; timeoutMs?: number }): Promise<number>;
  /** The token file, opened for reading, not through a link. */
  openToken(): Promise<number>;
  /** The log, opened for appending; rotated before when it was full. */
  openLog(): Promise<number>;
  /** Tells whoever started the gatekeeper that connections are welcome. Once. */
  ready(): Promise<void>;
}

/**
 *     request   u8 verb   u8 number
 *     answer    u8 number   u8 status: 0 granted, 1 refused   u8 errno (0 when granted); the descriptor rides along
 *
 * Numbers rise and wrap. An answer whose asker gave up is known by its number, and what came with it is closed.
 */
const VERB = { connect: 0x43, token: 0x54, log: 0x4c, ready: 0x52 } as const;
type Verb = keyof typeof VERB;

const VERB_WORDS: Readonly<Record<Verb, string>> = {
  connect: "reach the service",
  token: "open the token",
  log: "open the log",
  ready: "say that the gateway is ready",
};

type Messages = Pick<Native, "sendDescriptorsLater" | "receiveDescriptorsLater" | "closeDescriptor">;

export function openGatekeeper(fd: number, native: Messages): Gatekeeper {
  const asker = new Asker(fd, native);
  return {
    connectService: (options = {}) => asker.ask("connect", options),
    openToken: () => asker.ask("token"),
    openLog: () => asker.ask("log"),
    async ready() {
      await asker.ask("ready");
    },
  };
}

interface AskOptions {
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

/** One request at a time, so that one thread of the pool is taken at most, however many clients come at once. */
class Asker {
  readonly #fd: number;
  readonly #native: Messages;
  #number = 0;
  #waiting = 0;
  #last: Promise<unknown> = Promise.resolve();

  constructor(fd: number, native: Messages) {
    this.#fd = fd;
    this.#native = native;
  }

  /** The descriptor that was granted; -1 for a verb without one. */
  ask(verb: Verb, options: AskOptions = {}): Promise<number> {
    if (this.#waiting >= GATEKEEPER_QUEUE_MAX) {
      return Promise.reject(refused(verb, `${GATEKEEPER_QUEUE_MAX} requests wait already`, true));
    }
    this.#waiting += 1;
    const { signal } = options;
    const left = defer<number>();
    const leave = () => left.reject(refused(verb, "it was cancelled", false));
    signal?.addEventListener("abort", leave, { once: true });
    const turn = this.#last.then(() => {
      // From here on the exchange hears it.
      signal?.removeEventListener("abort", leave);
      return this.#exchange(verb, options);
    });
    this.#last = turn
      .catch(() => undefined)
      .finally(() => {
        this.#waiting -= 1;
      });
    return Promise.race([turn, left.promise]);
  }

  async #exchange(verb: Verb, { signal, timeoutMs = GATEKEEPER_TIMEOUT_MS }: AskOptions): Promise<number> {
    if (signal?.aborted === true) throw refused(verb, "it was cancelled", false);
    this.#number = (this.#number + 1) % 256;
    const number = this.#number;
    try {
      await this.#native.sendDescriptorsLater(this.#fd, Uint8Array.of(VERB[verb], number), [], { timeoutMs });
      return this.#granted(verb, await this.#answerOf(number, { timeoutMs, signal }));
    } catch (thrown) {
      throw translated(verb, thrown);
    }
  }

  async #answerOf(number: number, waiting: { timeoutMs: number; signal: AbortSignal | undefined }) {
    for (;;) {
      const answer = await this.#native.receiveDescriptorsLater(this.#fd, GATEKEEPER_ANSWER_BYTES, waiting);
      if (answer.payload.length === 0) throw lost("it has ended");
      if (answer.payload.length === GATEKEEPER_ANSWER_BYTES && answer.payload[0] === number) return answer;
      this.#closeAll(answer);
    }
  }

  #granted(verb: Verb, answer: Received): number {
    const [, status, errno = 0] = answer.payload;
    const [fd, ...others] = answer.fds;
    if (status === 0 && others.length === 0 && (fd === undefined) === (verb === "ready")) return fd ?? -1;
    this.#closeAll(answer);
    if (status === 0) throw lost("it answered with something else");
    throw refused(verb, ERRNO_WORDS[errno] ?? `errno ${errno}`, verb === "connect");
  }

  #closeAll({ fds }: Received): void {
    for (const fd of fds) this.#native.closeDescriptor(fd);
  }
}

/** The few that a person can act on; linux/errno.h. */
const ERRNO_WORDS: Readonly<Record<number, string>> = {
  2: "it is not there (ENOENT)",
  11: "its queue is full (EAGAIN)",
  13: "access is denied (EACCES)",
  24: "too many files are open (EMFILE)",
  28: "the disk is full (ENOSPC)",
  40: "it is a link (ELOOP)",
  111: "nothing listens there (ECONNREFUSED)",
};

function refused(verb: Verb, why: string, retryable: boolean): Failure<JailFailureKind> {
  return jailFailure("gatekeeper_refused", `Cannot ${VERB_WORDS[verb]}: ${why}`, { retryable });
}

function lost(why: string, cause?: unknown): Failure<JailFailureKind> {
  return jailFailure("gatekeeper_lost", `Cannot reach the gatekeeper: ${why}`, { cause });
}

/** A deadline or an abort is the asker's own; any other failure of the pair means that nobody is behind it. */
function translated(verb: Verb, thrown: unknown): unknown {
  assert(thrown instanceof Error, "only errors are thrown");
  const kind = "kind" in thrown ? String(thrown.kind) : "";
  if (kind.startsWith("gatekeeper_")) return thrown;
  if (kind === "EAGAIN") return refused(verb, "the gatekeeper did not answer in time", true);
  if (kind === "ECANCELED") return refused(verb, "it was cancelled", false);
  return kind.startsWith("E") ? lost(thrown.message, thrown) : thrown;
}
