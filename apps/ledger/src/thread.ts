import { MessageChannel, type MessagePort, Worker } from "node:worker_threads";
import { type Deferred, defer, Failure, within } from "@capsem/base";
import { warmSqlite } from "@capsem/ledger";
import { type KeeperAnswer, type KeeperMessage, runKeeper } from "./keeper-thread.ts";
import { APP_LIMITS } from "./limits.ts";
import { thrownFrom, type WriterAnswer, type WriterCalls, type WriterVerb } from "./writer-message.ts";
import { runWriter } from "./writer-thread.ts";

/** What a thread is started with. */
interface ThreadData {
  readonly kind: "writer" | "keeper";
  readonly root: string;
  readonly bytesMax: number;
  readonly port: MessagePort;
  readonly wake: Int32Array;
}

export interface ThreadOptions {
  /** The program's own file, which a thread runs again. */
  readonly program: string;
  readonly root: string;
  readonly bytesMax: number;
  /** A thread that ends by itself is a fault of the program: nothing goes on without it. */
  readonly onDeath: (kind: string, cause: unknown) => void;
}

/** What a thread of this program does, from its first line. */
export function runThread({ kind, root, bytesMax, port, wake }: ThreadData): void {
  // The binary, and every path of its code that a sealed process could not load any more.
  warmSqlite();
  port.postMessage("ready");
  if (kind === "writer") runWriter({ root, bytesMax, port, wake });
  else runKeeper({ root, port });
}

/** The writing thread, as seen from the main one. */
export class WriterThread {
  readonly ready: Promise<void>;
  readonly #port: MessagePort;
  readonly #wake = new Int32Array(new SharedArrayBuffer(4));
  readonly #waiting = new Map<number, Deferred<unknown>>();
  #lastId = 0;

  constructor(options: ThreadOptions) {
    this.#port = start("writer", options, this.#wake);
    this.ready = readiness(this.#port, "writer");
    this.#port.on("message", (answers: "ready" | readonly WriterAnswer[]) => {
      if (answers === "ready") return;
      for (const answer of answers) this.#settle(answer);
    });
  }

  call<V extends WriterVerb>(verb: V, params: WriterCalls[V]["params"]): Promise<WriterCalls[V]["result"]> {
    const id = ++this.#lastId;
    const answer = defer<unknown>();
    this.#waiting.set(id, answer);
    this.#port.postMessage({ id, verb, params });
    Atomics.add(this.#wake, 0, 1);
    Atomics.notify(this.#wake, 0);
    return answer.promise as Promise<WriterCalls[V]["result"]>;
  }

  #settle(answer: WriterAnswer): void {
    const waiting = this.#waiting.get(answer.id);
    this.#waiting.delete(answer.id);
    if ("failure" in answer) waiting?.reject(thrownFrom(answer.failure));
    else waiting?.resolve(answer.value);
  }
}

/** The checkpointing thread. */
export class KeeperThread {
  readonly ready: Promise<void>;
  readonly #port: MessagePort;
  readonly #waiting = new Map<number, Deferred<void>>();
  #lastId = 0;

  constructor(options: ThreadOptions & { onFault: (ledger: string, fault: string) => void }) {
    this.#port = start("keeper", options, new Int32Array(new SharedArrayBuffer(4)));
    this.ready = readiness(this.#port, "keeper");
    this.#port.on("message", (answer: "ready" | KeeperAnswer) => {
      if (answer === "ready") return;
      if ("fault" in answer) return options.onFault(answer.ledger, answer.fault);
      this.#waiting.get(answer.id)?.resolve();
      this.#waiting.delete(answer.id);
    });
  }

  touched(ledger: string): void {
    this.#port.postMessage({ verb: "touched", ledger } satisfies KeeperMessage);
  }

  release(ledger: string): Promise<void> {
    return this.#ask((id) => ({ verb: "release", ledger, id }));
  }

  end(): Promise<void> {
    return this.#ask((id) => ({ verb: "end", id }));
  }

  #ask(message: (id: number) => KeeperMessage): Promise<void> {
    const id = ++this.#lastId;
    const answer = defer<void>();
    this.#waiting.set(id, answer);
    this.#port.postMessage(message(id));
    return answer.promise;
  }
}

function start(kind: ThreadData["kind"], options: ThreadOptions, wake: Int32Array): MessagePort {
  const { port1, port2 } = new MessageChannel();
  const { program, root, bytesMax, onDeath } = options;
  const workerData: ThreadData = { kind, root, bytesMax, port: port2, wake };
  const worker = new Worker(program, { workerData, transferList: [port2] });
  worker.on("error", (cause) => onDeath(kind, cause));
  worker.on("exit", (code) => {
    if (code !== 0) onDeath(kind, new Error(`it ended with ${code}`));
  });
  return port1;
}

function readiness(port: MessagePort, kind: string): Promise<void> {
  const said = new Promise<void>((resolve) => port.once("message", () => resolve()));
  const failure = () =>
    new Failure("ledger_failed", `Cannot start the ledger: its ${kind} thread says nothing`);
  return within(said, APP_LIMITS.threadTimeoutMs, failure);
}
