import type { Duplex } from "node:stream";
import { assert, type Deferred, defer, type Failure, ignore, within } from "@capsem/base";
import { type VmmFailureKind, vmmFailure } from "./error.ts";
import { QMP_CALL_TIMEOUT_MS, QMP_LINE_BYTES_MAX, QMP_PENDING_MAX } from "./limits.ts";
import { isObject, LineSplitter, parseQmpLine, type QmpLine, type QmpObject } from "./qmp-line.ts";

/** Every command that is ever sent. */
export type QmpCommand =
  | "qmp_capabilities"
  | "query-version"
  | "query-status"
  | "stop"
  | "cont"
  | "quit"
  | "getfd"
  | "migrate"
  | "migrate-incoming"
  | "migrate-set-capabilities"
  | "migrate-set-parameters"
  | "query-migrate"
  | "blockdev-add"
  | "blockdev-reopen";

export type QmpEvent = "MIGRATION" | "VSERPORT_CHANGE" | "SHUTDOWN" | "STOP" | "RESUME" | "GUEST_PANICKED";

/**
 * A client of QEMU's control protocol over a connection that is already open. Every call ends: with its
 * answer, with its time limit, or with the connection. Whoever makes it owns the stream through it.
 */
export class Qmp {
  /** Resolves when the connection is over, with a failure when it was us who gave up on it. Never rejects. */
  readonly ended: Promise<Failure<VmmFailureKind> | undefined>;
  readonly #stream: Duplex;
  readonly #splitter = new LineSplitter(QMP_LINE_BYTES_MAX);
  readonly #pending = new Map<number, { command: QmpCommand; answer: Deferred<unknown> }>();
  readonly #listeners = new Map<string, Set<(data: QmpObject) => void>>();
  readonly #greeting: Deferred<void> = defer();
  readonly #end: Deferred<Failure<VmmFailureKind> | undefined> = defer();
  #over = false;
  #nextId = 1;

  constructor(stream: Duplex) {
    this.#stream = stream;
    this.ended = this.#end.promise;
    ignore(this.#greeting.promise);
    stream.on("data", (chunk: Buffer) => this.#read(chunk));
    stream.once("end", () => this.#finish());
    stream.once("close", () => this.#finish());
    // A peer that is gone with unread bytes of ours resets the connection: an end like the others.
    stream.once("error", () => this.#finish());
  }

  get isOver(): boolean {
    return this.#over;
  }

  /** Waits for QEMU's greeting and leaves the negotiation. The first call of every connection. */
  async negotiate(timeoutMs: number): Promise<void> {
    const late = () =>
      vmmFailure("hypervisor_timeout", `Cannot reach the hypervisor: silent for ${timeoutMs} ms`);
    await within(this.#greeting.promise, timeoutMs, late);
    await this.call("qmp_capabilities", {}, timeoutMs);
  }

  async call(
    command: QmpCommand,
    parameters: QmpObject = {},
    timeoutMs = QMP_CALL_TIMEOUT_MS,
  ): Promise<unknown> {
    return this.#ask(command, parameters, timeoutMs, (bytes) => this.#stream.write(bytes));
  }

  /** A call whose bytes `send` writes itself, all of them, on the socket of that number: descriptors go with them. */
  async callWith(
    command: QmpCommand,
    parameters: QmpObject,
    send: (socketFd: number, bytes: Buffer) => void,
  ): Promise<unknown> {
    // Bytes still in the stream's queue would be overtaken.
    assert(this.#stream.writableLength === 0, "QMP is busy");
    const { socketFd } = this;
    return this.#ask(command, parameters, QMP_CALL_TIMEOUT_MS, (bytes) => send(socketFd, bytes));
  }

  /** The number of the stream's descriptor, for as long as it is open. */
  get socketFd(): number {
    return socketNumberOf(this.#stream);
  }

  /** Calls `listener` for each such event until the returned function is called. */
  on(event: QmpEvent, listener: (data: QmpObject) => void): () => void {
    let set = this.#listeners.get(event);
    if (set === undefined) {
      set = new Set();
      this.#listeners.set(event, set);
    }
    set.add(listener);
    return () => set.delete(listener);
  }

  /** Ends the connection from our side; pending calls fail. */
  close(): void {
    this.#finish();
  }

  async #ask(
    command: QmpCommand,
    parameters: QmpObject,
    timeoutMs: number,
    write: (bytes: Buffer) => void,
  ): Promise<unknown> {
    if (this.#over) throw gone(command);
    assert(this.#pending.size < QMP_PENDING_MAX, "too many QMP calls at once");
    const id = this.#nextId++;
    const answer = defer<unknown>();
    ignore(answer.promise);
    this.#pending.set(id, { command, answer });
    try {
      write(Buffer.from(`${JSON.stringify({ execute: command, arguments: parameters, id })}\n`));
      return await within(answer.promise, timeoutMs, () =>
        vmmFailure("hypervisor_timeout", `Cannot ${command}: the hypervisor was silent for ${timeoutMs} ms`),
      );
    } finally {
      // A late answer then finds nobody and is dropped.
      this.#pending.delete(id);
    }
  }

  #read(chunk: Buffer): void {
    const lines = this.#over ? [] : this.#parse(chunk);
    for (const line of lines) {
      // A listener may have closed the connection.
      if (!this.#over) this.#take(line);
    }
  }

  #parse(chunk: Buffer): QmpLine[] {
    try {
      return this.#splitter.push(chunk).map(parseQmpLine);
    } catch (cause) {
      this.#finish(
        vmmFailure("hypervisor_protocol", "Cannot use the hypervisor: it said what is not QMP", { cause }),
      );
      return [];
    }
  }

  #take(line: QmpLine): void {
    switch (line.kind) {
      case "greeting":
        this.#greeting.resolve();
        return;
      case "answer":
        this.#pending.get(line.id)?.answer.resolve(line.value);
        return;
      case "refusal":
        this.#refuse(line);
        return;
      case "event":
        for (const listener of this.#listeners.get(line.name) ?? []) listener(line.data);
    }
  }

  #refuse(line: QmpLine & { kind: "refusal" }): void {
    const pending = line.id === null ? undefined : this.#pending.get(line.id);
    pending?.answer.reject(
      vmmFailure("hypervisor_refused", `Cannot ${pending.command}: ${line.description}`, {
        detail: line.class,
      }),
    );
  }

  #finish(failure?: Failure<VmmFailureKind>): void {
    if (this.#over) return;
    this.#over = true;
    this.#stream.destroy();
    this.#greeting.reject(failure ?? gone("negotiate"));
    for (const { command, answer } of this.#pending.values()) answer.reject(failure ?? gone(command));
    this.#end.resolve(failure);
  }
}

function gone(command: string): Failure<VmmFailureKind> {
  return vmmFailure("hypervisor_exit", `Cannot ${command}: the hypervisor has ended`);
}

/** Node has no public way to a socket's descriptor; the handle has had it since there are handles. */
function socketNumberOf(stream: Duplex): number {
  const handle = "_handle" in stream ? stream._handle : undefined;
  assert(isObject(handle) && typeof handle.fd === "number" && handle.fd >= 0, "QMP must be a socket");
  return handle.fd;
}
