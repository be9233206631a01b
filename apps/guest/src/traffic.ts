import type { ChildProcess } from "node:child_process";
import { assert, type Deferred, defer, Failure, ignore, messageOf, sleep, within } from "@capsem/base";
import { guestFailure } from "./guest-error.ts";
import { parseReport } from "./helper-protocol.ts";
import { GUEST_LIMITS } from "./limits.ts";
import type { Log } from "./log.ts";
import { isSystemError } from "./plain-file.ts";
import { ReportReader } from "./report-reader.ts";

export interface TrafficOptions {
  /** Starts `capsem-helper traffic`. */
  readonly start: () => ChildProcess;
  readonly log: Log;
}

/**
 * Keeps `capsem-helper traffic` running as long as there are a workload's namespaces (guest-image/helper/PROTOCOL.md,
 * section 5). It has the traffic lane's port, which it opens by itself; from here it only learns which generation of the
 * lane comes.
 */
export class Traffic {
  readonly #options: TrafficOptions;
  #run: Run | undefined;
  /** Of every run that was closed: the next one's relay opens the same port. */
  #closed: Promise<void> = Promise.resolve();
  #newest = 0;

  constructor(options: TrafficOptions) {
    this.#options = options;
  }

  /** Resolves when programs of the workload can connect, or when that takes too long: a workload is of use without. */
  async open(init: number): Promise<void> {
    assert(this.#run === undefined, "one workload has one relay");
    const run: Run = { init, isOver: false, relay: defer(), gone: Promise.resolve() };
    this.#run = run;
    run.gone = this.#closed.then(() => this.#keep(run));
    const { log } = this.#options;
    await within(run.relay.promise, GUEST_LIMITS.trafficStartTimeoutMs).catch((error: unknown) =>
      log.error("traffic relay not ready", { error: messageOf(error) }),
    );
  }

  /** Resolves when nothing of it runs any more. */
  async close(): Promise<void> {
    const run = this.#run;
    if (run !== undefined) {
      this.#run = undefined;
      run.isOver = true;
      run.process?.kill();
      this.#closed = run.gone;
    }
    await this.#closed;
  }

  /**
   * Tells the relay of a new generation of the lane. One that dies before it has answered is followed by another, which
   * is told; one that dies later has the host see its port closed. Throws Failure("wrong_state" | "internal").
   */
  async reopen(marker: Uint8Array, generation: number): Promise<void> {
    const run = this.#run;
    if (run === undefined) {
      throw guestFailure("wrong_state", "Cannot open the traffic lane: the disk is not mounted");
    }
    this.#newest += 1;
    const number = this.#newest;
    const line = `lane ${generation} ${Buffer.from(marker).toString("hex")}`;
    const told = async () => {
      for (;;) {
        const relay = await run.relay.promise;
        // A relay that was waited for is not told of what is over by now.
        const answer = number === this.#newest ? await relay.ask(line) : undefined;
        if (number !== this.#newest)
          throw guestFailure("wrong_state", "Cannot open the traffic lane: a newer one is");
        if (answer !== undefined) return answer;
      }
    };
    const answer = await within(told(), GUEST_LIMITS.trafficOrderTimeoutMs, () =>
      guestFailure("internal", "Cannot open the traffic lane: its relay does not answer"),
    );
    if (answer === `ok ${generation}`) return;
    const report = parseReport(answer);
    const why =
      report?.kind === "error" ? `${report.step} ${report.errno}` : "its relay's answer is malformed";
    throw guestFailure("internal", `Cannot open the traffic lane: ${why}`);
  }

  /** One relay after the other until the run is over. */
  async #keep(run: Run): Promise<void> {
    while (!run.isOver) {
      const { why, wasReady } = await this.#once(run);
      if (run.isOver) break;
      // Who waits for one that never was ready waits for the next.
      if (wasReady) run.relay = defer();
      ignore(run.relay.promise);
      this.#options.log.warn("traffic relay ended", { why });
      await sleep(GUEST_LIMITS.trafficRetryMs);
    }
    run.relay.reject(guestFailure("wrong_state", "Cannot open the traffic lane: the workload ended"));
    ignore(run.relay.promise);
  }

  /** One relay to its end; why it ended. */
  async #once(run: Run): Promise<{ why: string; wasReady: boolean }> {
    let relay: RelayProcess;
    try {
      relay = new RelayProcess(this.#options.start());
    } catch (error) {
      // Out of processes, memory or descriptors: later there may be room.
      if (!isSystemError(error)) throw error;
      return { why: messageOf(error), wasReady: false };
    }
    run.process = relay;
    const first = await relay.ask(`init ${run.init}`);
    if (first === "ready") run.relay.resolve(relay);
    else relay.kill();
    await relay.ended;
    const wasReady = first === "ready";
    return { why: wasReady ? "it was ready" : (first ?? "it said nothing").slice(0, 200), wasReady };
  }
}

interface Run {
  readonly init: number;
  isOver: boolean;
  process?: RelayProcess;
  /** The one that is ready now, or will be next. */
  relay: Deferred<RelayProcess>;
  gone: Promise<void>;
}

/** One running relay: an answer line for each order, in order; undefined only when it is known to have ended. */
class RelayProcess {
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;
  readonly #reader: ReportReader;
  #asking: Promise<unknown> = Promise.resolve();

  constructor(child: ChildProcess) {
    assert(child.stdin && child.stdout, "a traffic relay has a stdin and a stdout");
    this.#child = child;
    this.#reader = new ReportReader(child.stdout);
    child.stdin.on("error", () => child.kill("SIGKILL"));
    this.ended = new Promise<void>((resolve) => {
      child.once("exit", () => resolve());
      child.once("error", () => resolve());
    });
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }

  /**
   * undefined when it said what is no line, or says nothing any more: one that hangs is killed. The end of its output
   * comes before the news of its own end: who asked again in between would ask the same one, without a turn of the event
   * loop for that news.
   */
  async #line(): Promise<string | undefined> {
    const answer = within(this.#reader.line(), GUEST_LIMITS.trafficAnswerTimeoutMs);
    const line = await answer.catch((error: unknown) => {
      if (!(error instanceof Failure)) throw error;
      return null;
    });
    if (line !== null) return line;
    this.kill();
    await this.ended;
    return undefined;
  }

  ask(line: string): Promise<string | undefined> {
    const answer = this.#asking.then(() => {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) return undefined;
      this.#child.stdin?.write(`${line}\n`);
      return this.#line();
    });
    this.#asking = answer;
    return answer;
  }
}
