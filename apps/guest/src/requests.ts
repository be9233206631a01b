import { type Deferred, defer, Failure, messageOf, unreachable, within } from "@capsem/base";
import { decodeMessagePack, type GuestMessage, type HostBody, type HostMessage } from "@capsem/wire";
import type { Files } from "./files.ts";
import type { Gate } from "./gate.ts";
import { guestFailure, toGuestFailure } from "./guest-error.ts";
import type { Jobs } from "./jobs.ts";
import { Journal } from "./journal.ts";
import { GUEST_LIMITS } from "./limits.ts";
import type { Listings } from "./listing.ts";
import type { Log } from "./log.ts";
import { messageBytes } from "./message-size.ts";
import type { Outbox } from "./outbox.ts";
import { readExactly } from "./read-exactly.ts";
import type { Traffic } from "./traffic.ts";
import type { Transfers } from "./transfers.ts";
import type { Trees } from "./trees.ts";
import type { Workload } from "./workload.ts";

export interface RequestsOptions {
  readonly workload: Workload;
  readonly jobs: Jobs;
  readonly files: Files;
  readonly listings: Listings;
  readonly trees: Trees;
  readonly transfers: Transfers;
  readonly traffic: Traffic;
  readonly gate: Gate;
  readonly outbox: Outbox;
  readonly log: Log;
  readonly nowMs: () => number;
  /** Has helpers stand ready, so that the first command after a restore finds one. */
  readonly fillHelpers: () => Promise<void>;
  /** Ends the workload and the disk in order. */
  readonly endWorkload: () => Promise<void>;
  readonly powerOff: () => void;
}

type Request = Exclude<HostMessage, { name: "ping" | "host_ack" }>;
type Answer = (message: GuestMessage) => void;

/**
 * What the host asks. `handle` never waits and never throws: a ping is answered at once, all else runs beside
 * the others and is answered when it is done. An id that was seen is answered from the journal.
 */
export class Requests {
  readonly #options: RequestsOptions;
  #journal = new Journal(GUEST_LIMITS.journalEntriesMax, GUEST_LIMITS.journalBytesMax);
  /** From prepare_snapshot to thaw; one that was given up is not the one that is here. */
  #save: object | undefined;
  #isShuttingDown = false;
  #underWay = 0;
  #idle: Deferred<void> | undefined;
  #isSettingClock = false;

  constructor(options: RequestsOptions) {
    this.#options = options;
  }

  /** `readUs`: when the last of its bytes was read. */
  handle(message: HostMessage, readUs: number): void {
    if (message.name === "ping") this.#pong(message.body);
    else if (message.name !== "host_ack") this.#begin(message, readUs);
  }

  /**
   * A new lane generation. After a save this is another host, or the same after a restore: its ids start
   * again, so what the journal knows would answer the wrong question.
   */
  renew(): void {
    if (this.#save === undefined) return;
    this.#journal = new Journal(GUEST_LIMITS.journalEntriesMax, GUEST_LIMITS.journalBytesMax);
    this.#thaw();
  }

  #pong(body: HostBody<"ping">): void {
    const { workload, outbox, nowMs } = this.#options;
    const processes = workload.processCount();
    outbox.putFirst({
      name: "pong",
      body: {
        sequence: body.sequence,
        clock_ms: nowMs(),
        ...(processes === undefined ? {} : { workload_processes: processes }),
      },
    });
    if (body.clock_ms !== undefined) this.#followClock(body.clock_ms);
  }

  /** A paused VM's clock stands still; the host tells the time with its pings. */
  #followClock(clockMs: number): void {
    const { workload, nowMs, log } = this.#options;
    if (this.#isSettingClock || Math.abs(nowMs() - clockMs) < GUEST_LIMITS.clockSkewMsMax) return;
    this.#isSettingClock = true;
    workload
      .setClock(clockMs)
      .catch((error: unknown) => log.warn("clock not set", { error: messageOf(error) }))
      .finally(() => {
        this.#isSettingClock = false;
      });
  }

  #begin(request: Request, readUs: number): void {
    const { id } = request.body;
    const known = this.#journal.take(id);
    if (known !== undefined) {
      for (const message of known) this.#options.outbox.put(message);
      return;
    }
    const journal = this.#journal;
    let isAnswered = false;
    const send = (message: GuestMessage, last: boolean) => {
      isAnswered = true;
      journal.record(id, message, messageBytes(message), last);
      this.#options.outbox.put(message, readUs);
    };
    this.#run(request, readUs, send).catch((error: unknown) => {
      this.#refuse(request, error, isAnswered, (message) => send(message, true));
    });
  }

  #refuse(request: Request, error: unknown, isAnswered: boolean, answer: Answer): void {
    const { log, transfers } = this.#options;
    const failure = toGuestFailure(error);
    const facts = { request: request.name, kind: failure.kind };
    // Other messages quote the user's paths and programs.
    if (failure.kind !== "internal") log.info("request failed", facts);
    else log.error("request failed", { ...facts, error: failure.message, detail: failure.detail });
    if (!request.name.startsWith("job_")) transfers.refuse(request.body.id);
    if (isAnswered) return;
    const { id } = request.body;
    answer({ name: "error", body: { id, kind: failure.kind, message: failure.message.slice(0, 2_000) } });
  }

  /** `send` is called once for most requests, twice for a job. */
  async #run(
    request: Request,
    readUs: number,
    send: (message: GuestMessage, last: boolean) => void,
  ): Promise<void> {
    const { jobs } = this.#options;
    const answer: Answer = (message) => send(message, true);
    if (request.name === "prepare_snapshot") return this.#prepareSnapshot(request.body, answer);
    if (request.name === "shutdown") return this.#shutDown(request.body.id, answer);
    if (request.name === "thaw") {
      this.#thaw();
      return answer(ack(request.body.id));
    }
    if (this.#save !== undefined)
      throw guestFailure("wrong_state", "Cannot start work: the VM is being saved");
    if (this.#isShuttingDown) throw guestFailure("wrong_state", "Cannot start work: the VM is shutting down");
    if (request.name !== "job_start") return this.#count(() => this.#perform(request, answer));
    const { id, job } = request.body;
    const started = () => send({ name: "job_started", body: { id, job } }, false);
    const done = await jobs.run(request.body, readUs, started);
    answer({ name: "job_done", body: done });
  }

  async #perform(
    request: Exclude<Request, { name: "prepare_snapshot" | "shutdown" | "thaw" | "job_start" }>,
    answer: Answer,
  ): Promise<void> {
    const { workload, jobs, files, listings, trees, traffic } = this.#options;
    const { id } = request.body;
    const fileAnswer = (facts: object = {}) => answer({ name: "file_answer", body: { id, ...facts } });
    switch (request.name) {
      case "boot_config":
        await workload.configure(request.body);
        return answer(ack(id));
      case "set_env":
        workload.setEnvironment(await this.#receiveEnvironment(request.body));
        return answer(ack(id));
      case "mount_disk":
        await workload.mount(request.body.capacity_bytes);
        return answer(ack(id));
      case "reopen_traffic":
        await traffic.reopen(request.body.marker, request.body.lane_generation);
        return answer(ack(id));
      case "job_signal":
        jobs.signal(request.body);
        return answer(ack(id));
      case "job_resize":
        jobs.resize(request.body);
        return answer(ack(id));
      case "file_stat":
        return fileAnswer({ entry: await files.stat(request.body) });
      case "file_list":
        return fileAnswer(await listings.page(request.body));
      case "file_read":
        return files.read(request.body, (total) => fileAnswer({ total }));
      case "file_write":
        return fileAnswer({ bytes: await files.write(request.body) });
      case "file_mkdir":
        return fileAnswer(void (await files.mkdir(request.body)));
      case "file_rename":
        return fileAnswer(void (await files.rename(request.body)));
      case "file_remove":
        return fileAnswer(void (await files.remove(request.body)));
      case "tree_in":
        return fileAnswer({ bytes: await trees.in(request.body) });
      case "tree_out":
        return trees.out(request.body, () => fileAnswer());
      default:
        return unreachable(request);
    }
  }

  async #receiveEnvironment(body: HostBody<"set_env">): Promise<string[]> {
    const stream = await this.#options.transfers.expect(body.id);
    try {
      const entries = decodeMessagePack(await readExactly(stream, body.size));
      stream.end();
      if (Array.isArray(entries) && entries.every((entry) => typeof entry === "string")) return entries;
      throw guestFailure("invalid_input", "Cannot set environment: it is not a list of texts");
    } catch (error) {
      stream.reset("refused");
      if (!(error instanceof Failure) || error.kind === "invalid_input") throw error;
      throw guestFailure("invalid_input", `Cannot set environment: ${error.message}`, error);
    }
  }

  /** Bounds what runs at once, and knows when nothing does. */
  async #count(work: () => Promise<void>): Promise<void> {
    if (this.#underWay >= GUEST_LIMITS.operationsMax) {
      throw guestFailure("quota", `Cannot start work: ${this.#underWay} operations are under way`);
    }
    this.#underWay += 1;
    try {
      await work();
    } finally {
      this.#underWay -= 1;
      if (this.#underWay === 0) {
        this.#idle?.resolve();
        this.#idle = undefined;
      }
    }
  }

  /** Resolves when no operation and no frame is under way. */
  async #quiet(): Promise<void> {
    while (this.#underWay > 0) {
      this.#idle ??= defer();
      await this.#idle.promise;
    }
    await this.#options.gate.idle();
  }

  async #prepareSnapshot({ id, unmount }: HostBody<"prepare_snapshot">, answer: Answer): Promise<void> {
    const { gate, outbox, workload, fillHelpers } = this.#options;
    if (this.#isShuttingDown)
      throw guestFailure("wrong_state", "Cannot prepare the save: the VM is shutting down");
    const save = {};
    this.#save = save;
    gate.close();
    outbox.release();
    // A thaw, another lane or another save came: what follows would stop a VM that goes on.
    const goOn = () => {
      if (this.#save !== save) throw guestFailure("wrong_state", "Cannot prepare the save: it was given up");
    };
    try {
      await within(this.#quiet(), GUEST_LIMITS.quiesceTimeoutMs, () =>
        guestFailure("wrong_state", `Cannot prepare the save: ${this.#underWay} operations are under way`),
      );
      goOn();
      if (unmount) await workload.release();
      goOn();
      await fillHelpers();
      goOn();
    } catch (error) {
      if (this.#save === save) this.#thaw();
      throw error;
    }
    answer(ack(id));
    await outbox.hold();
  }

  #thaw(): void {
    this.#save = undefined;
    this.#options.gate.open();
    this.#options.outbox.release();
  }

  async #shutDown(id: string, answer: Answer): Promise<void> {
    const { endWorkload, outbox, powerOff, log } = this.#options;
    this.#isShuttingDown = true;
    // A save that is under way is given up: its silence would take this answer too.
    this.#thaw();
    try {
      await endWorkload();
      answer(ack(id));
    } catch (error) {
      log.error("the disk was not unmounted", { error: messageOf(error) });
      const message = "Cannot unmount the disk: its journal will be replayed at the next start";
      answer({ name: "error", body: { id, kind: "internal", message } });
    }
    // A host that reads no more does not keep the machine on.
    await within(outbox.flushed(), GUEST_LIMITS.lastWordsTimeoutMs).catch((error: unknown) =>
      log.warn("the host was not told of the shutdown", { error: messageOf(error) }),
    );
    // The last frame must have left the port before the machine is gone.
    setTimeout(powerOff, GUEST_LIMITS.powerOffDelayMs);
  }
}

function ack(id: string): GuestMessage {
  return { name: "ack", body: { id } };
}
