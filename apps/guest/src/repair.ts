import type { ChildProcess } from "node:child_process";
import { assert, type Deferred, defer, within } from "@capsem/base";
import { guestFailure } from "./guest-error.ts";
import { type HelperError, parseReport } from "./helper-protocol.ts";
import { GUEST_LIMITS } from "./limits.ts";
import { ReportReader } from "./report-reader.ts";

/** What `ask` throws when the helper said no: its own words, for whoever knows what was asked. */
export class RepairRefusal extends Error {
  readonly report: HelperError;

  constructor(report: HelperError) {
    super(`${report.step} ${report.errno} ${report.text}`);
    this.name = "RepairRefusal";
    this.report = report;
  }
}

/** One helper, with what was asked of it: an answer that it gives late is nobody else's. */
interface Run {
  readonly child: ChildProcess;
  readonly waiting: Deferred<string>[];
}

/**
 * The long-lived `capsem-helper repair`: it waits in the golden, so that clock, entropy and names are right
 * one round trip after a restore. One answer line a command, in order.
 */
export class Repair {
  readonly #spawn: () => ChildProcess;
  #run: Run | undefined;

  constructor(spawn: () => ChildProcess) {
    this.#spawn = spawn;
  }

  start(): void {
    this.#running();
  }

  /** What follows "ok". Throws RepairRefusal, or Failure("internal") when the helper is lost or silent. */
  async ask(command: string, timeoutMs: number = GUEST_LIMITS.repairTimeoutMs): Promise<string> {
    const verb = command.split(" ", 1)[0] ?? "";
    const run = this.#running();
    const answer = defer<string>();
    run.waiting.push(answer);
    run.child.stdin?.write(`${command}\n`);
    const line = await within(answer.promise, timeoutMs, () => {
      // Answers come in order: after a lost one nothing could be told apart any more.
      run.child.kill("SIGKILL");
      this.#lost(run);
      return guestFailure("internal", `Cannot ${verb}: the helper did not answer in ${timeoutMs} ms`);
    });
    const report = parseReport(line);
    if (report?.kind === "error") throw new RepairRefusal(report);
    if (report?.kind === "ok") return report.words;
    // "lazy STEP" is an answer too: done, though something was still busy.
    if (line.startsWith("lazy ")) return line;
    throw guestFailure("internal", `Cannot ${verb}: the helper's answer is malformed`);
  }

  #running(): Run {
    if (this.#run !== undefined) return this.#run;
    const child = this.#spawn();
    const run: Run = { child, waiting: [] };
    this.#run = run;
    child.stdin?.on("error", () => child.kill("SIGKILL"));
    child.once("error", () => this.#lost(run));
    child.once("exit", () => this.#lost(run));
    assert(child.stdout, "the repair helper has a stdout");
    this.#receive(run, new ReportReader(child.stdout)).then(
      () => this.#lost(run),
      () => child.kill("SIGKILL"),
    );
    return run;
  }

  async #receive(run: Run, reader: ReportReader): Promise<void> {
    for (let line = await reader.line(); line !== null; line = await reader.line()) {
      run.waiting.shift()?.resolve(line);
    }
  }

  /** The next question starts another. */
  #lost(run: Run): void {
    if (this.#run === run) this.#run = undefined;
    for (const waiter of run.waiting.splice(0)) {
      waiter.reject(guestFailure("internal", "Cannot repair the guest: the helper ended"));
    }
  }
}
