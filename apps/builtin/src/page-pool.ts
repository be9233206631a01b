import { Worker } from "node:worker_threads";
import { Failure, messageOf, Slots } from "@capsem/base";
import { PAGE_LIMITS } from "./limits.ts";
import type { PageJobs, PageVerb } from "./page-job.ts";
import type { PageAnswer } from "./page-thread.ts";

export interface PagePoolOptions {
  /** The text of this program, one function of CommonJS: a sealed process can read it no more. */
  readonly program: string;
  readonly jobTimeoutMs?: number;
  readonly idleMs?: number;
  readonly heapMiB?: number;
}

/** A program's text as a thread runs it. */
const START = `
const { workerData } = require("node:worker_threads");
const { Script } = require("node:vm");
const loaded = { exports: {} };
new Script(workerData, { filename: "builtin-main.cjs" }).runInThisContext()(loaded.exports, require, loaded, "builtin-main.cjs", ".");
`;

/**
 * Threads for what a stranger's bytes decide the time of. None is there before the first job; one that takes too long,
 * or more memory than it has, is ended with its job, and what comes next gets a new one.
 */
export class PagePool {
  readonly #options: Required<PagePoolOptions>;
  readonly #slots = new Slots(PAGE_LIMITS.threadsMax, PAGE_LIMITS.waitingMax);
  readonly #all = new Set<Worker>();
  /** Without work, until their time is over. */
  readonly #idle = new Map<Worker, NodeJS.Timeout>();
  #isClosed = false;

  constructor(options: PagePoolOptions) {
    this.#options = {
      jobTimeoutMs: PAGE_LIMITS.jobTimeoutMs,
      idleMs: PAGE_LIMITS.idleMs,
      heapMiB: PAGE_LIMITS.heapMiB,
      ...options,
    };
  }

  /** Throws what the work throws, "timeout", "too_large" (of memory), "upstream_failed", or the signal's reason. */
  async run<V extends PageVerb>(
    verb: V,
    job: PageJobs[V]["job"],
    signal: AbortSignal,
  ): Promise<PageJobs[V]["result"]> {
    const taken = this.#slots.take(signal);
    if (taken === null) {
      const words = `Cannot convert the page: ${PAGE_LIMITS.waitingMax} others wait already`;
      throw new Failure("upstream_failed", words, { retryable: true });
    }
    const leave = await taken;
    try {
      signal.throwIfAborted();
      if (this.#isClosed) throw closed();
      return (await this.#runIn(this.#worker(), { verb, job }, signal)) as PageJobs[V]["result"];
    } finally {
      leave();
    }
  }

  /** Ends its threads; jobs fail. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#all].map((worker) => worker.terminate()));
  }

  /** Threads that there are. */
  get threads(): number {
    return this.#all.size;
  }

  #worker(): Worker {
    const [idle] = this.#idle;
    if (idle !== undefined) {
      const [worker, timer] = idle;
      clearTimeout(timer);
      this.#idle.delete(worker);
      return worker;
    }
    const worker = new Worker(START, {
      eval: true,
      workerData: this.#options.program,
      resourceLimits: { maxOldGenerationSizeMb: this.#options.heapMiB },
      // Its words would be strangers' words in our log.
      stdout: true,
      stderr: true,
    });
    this.#all.add(worker);
    worker.on("exit", () => this.#forget(worker));
    // Who waits for an answer hears of it as well; while it has no work, nobody does.
    worker.on("error", () => undefined);
    return worker;
  }

  #forget(worker: Worker): void {
    this.#all.delete(worker);
    clearTimeout(this.#idle.get(worker));
    this.#idle.delete(worker);
  }

  #runIn(worker: Worker, request: object, signal: AbortSignal): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const settle = (isAlive: boolean, done: () => void) => {
        clearTimeout(timer);
        signal.removeEventListener("abort", onAbort);
        worker.off("message", onAnswer).off("error", onError).off("exit", onExit);
        if (isAlive && !this.#isClosed) this.#rest(worker);
        else void worker.terminate();
        done();
      };
      const fail = (failure: unknown) => settle(false, () => reject(failure));
      const onAbort = () => fail(signal.reason);
      const onError = (thrown: unknown) => fail(deathOf(thrown));
      const onExit = (code: number) => fail(deathOf(new Error(`its thread ended with ${code}`)));
      const onAnswer = (answer: PageAnswer) =>
        settle(true, () => ("failure" in answer ? reject(failureOf(answer.failure)) : resolve(answer.value)));
      const timer = setTimeout(() => fail(tooLong(this.#options.jobTimeoutMs)), this.#options.jobTimeoutMs);
      signal.addEventListener("abort", onAbort, { once: true });
      worker.on("message", onAnswer).on("error", onError).on("exit", onExit);
      worker.postMessage(request);
    });
  }

  #rest(worker: Worker): void {
    const timer = setTimeout(() => {
      // It takes a moment to end, and gets no work in it.
      this.#idle.delete(worker);
      void worker.terminate();
    }, this.#options.idleMs);
    timer.unref();
    this.#idle.set(worker, timer);
  }
}

function closed(): Failure {
  return new Failure("upstream_failed", "Cannot convert the page: the tools are ending");
}

function tooLong(timeoutMs: number): Failure {
  return new Failure("timeout", `Cannot convert the page: it takes more than ${timeoutMs} ms`);
}

function failureOf({ kind, message }: { readonly kind: string; readonly message: string }): Failure {
  return new Failure(kind, message);
}

function deathOf(thrown: unknown): Failure {
  const isMemory = thrown instanceof Error && "code" in thrown && thrown.code === "ERR_WORKER_OUT_OF_MEMORY";
  const words = isMemory ? "it needs too much memory; the format raw needs less" : messageOf(thrown);
  const kind = isMemory ? "too_large" : "upstream_failed";
  return new Failure(kind, `Cannot convert the page: ${words}`, { cause: thrown });
}
