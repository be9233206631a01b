import { LEDGER_SERVICE_METHODS, type LedgerPlan, type LedgerRole, type Panic } from "@capsem/api";
import { messageOf } from "@capsem/base";
import { LAUNCH_STEPS } from "@capsem/native";
import { createPeer, type Peer } from "@capsem/rpc";
import { LOG_LIMITS, TIMES } from "../limits.ts";
import { LineGate } from "../log/line-gate.ts";
import { createLineSplitter } from "../log/line-splitter.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { settledWithin } from "../owner/settled.ts";
import type { LedgerChild, OwnerExit, Powers } from "../powers.ts";
import { OwnerWords } from "../trouble/owner-words.ts";
import { LedgerLink } from "./ledger-link.ts";
import { LEDGER_LIMITS } from "./limits.ts";

export interface LedgerProcessParts {
  readonly powers: Pick<Powers, "startLedger" | "nowMs" | "monotonicMs">;
  readonly folder: string;
  readonly vmBytesMax: () => number;
  readonly allowUnconfined: () => boolean;
  readonly onLogLine: (line: string) => void;
  readonly keepPanic: (panic: Panic) => void;
  /** Another link, or none. */
  readonly onChange: () => void;
  /** It has said its last word. */
  readonly onStopped: () => Promise<void>;
  readonly log: ServiceLog;
}

const ROLES = ["producer", "reader", "maintainer"] as const satisfies readonly LedgerRole[];

/** Keeps one ledger process alive: started, watched, started again when it dies, reaped at the end. */
export class LedgerProcess {
  /** Of the process that is ready; null while there is none. */
  link: LedgerLink | null = null;
  state: "starting" | "ok" | "away" = "starting";
  /** Why it is away. */
  reason: string | null = null;
  /** What it could not be confined by, in words. */
  unconfined: readonly string[] = [];
  notes: readonly string[] = [];
  readonly #parts: LedgerProcessParts;
  #life: Life | null = null;
  #awaySinceMs: number;
  /** When the process was started that has no link yet, and has not ended; null: there is none. */
  #comesSinceMs: number | null = null;
  #restart: NodeJS.Timeout | null = null;
  #watch: NodeJS.Timeout | null = null;
  #deaths = 0;
  #isStopped = false;

  constructor(parts: LedgerProcessParts) {
    this.#parts = parts;
    this.#awaySinceMs = parts.powers.monotonicMs();
  }

  get pid(): number | null {
    return this.#life?.child.pid ?? null;
  }

  /** How long there has been no link; 0 with one. */
  get awayMs(): number {
    return this.link === null ? this.#parts.powers.monotonicMs() - this.#awaySinceMs : 0;
  }

  /** Returns at once: whoever needs the ledger waits for its link. */
  start(): void {
    this.#begin();
    this.#watch = setInterval(() => this.#endSilent(), TIMES.pingIntervalMs);
    this.#watch.unref();
  }

  /** The process ends in order, or is killed. Idempotent. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    if (this.#restart !== null) clearTimeout(this.#restart);
    if (this.#watch !== null) clearInterval(this.#watch);
    const life = this.#life;
    if (life !== null) {
      for (const peer of life.peers) peer.close();
      if (!(await settledWithin(life.child.exited, LEDGER_LIMITS.exitTimeoutMs))) life.child.kill();
      await settledWithin(life.child.exited, TIMES.killTimeoutMs);
      await settledWithin(life.saidAll, TIMES.lastWordsTimeoutMs);
    }
    await this.#parts.onStopped();
  }

  #begin(): void {
    const { powers, folder, vmBytesMax, allowUnconfined } = this.#parts;
    const plan: LedgerPlan = {
      folder,
      channels: ROLES.map((role, index) => ({ role, producer: "service", fd: 3 + index })),
      vm_bytes_max: vmBytesMax(),
      allow_unconfined: allowUnconfined(),
    };
    try {
      this.#life = this.#startLife(powers.startLedger(plan), plan);
    } catch (thrown) {
      // No process at all: out of descriptors or memory, which may pass.
      this.#lost(messageOf(thrown), powers.monotonicMs(), false);
    }
  }

  #startLife(child: LedgerChild, plan: LedgerPlan): Life {
    const startedMs = this.#parts.powers.monotonicMs();
    this.#comesSinceMs = startedMs;
    const peers: Peer[] = [];
    let ready = 0;
    const handlers = {
      "ledger.ready": async (params: unknown) => {
        const said = LEDGER_SERVICE_METHODS["ledger.ready"].params.parse(params);
        this.unconfined = said.unconfined;
        this.notes = said.notes;
        ready += 1;
        if (ready === ROLES.length && this.#life?.child === child) this.#linked(peers, startedMs);
        return {};
      },
    };
    for (const duplex of child.channels) peers.push(createPeer({ role: "host", duplex, handlers }));
    child.stdin.on("error", () => undefined);
    child.stderr.on("error", () => undefined);
    child.stdin.end(`${JSON.stringify(plan)}\n`);
    const { words, saidAll } = this.#listen(child);
    const life = { child, peers, saidAll };
    void this.#watchEnd(life, words, startedMs);
    return life;
  }

  #listen(child: LedgerChild): { words: OwnerWords; saidAll: Promise<void> } {
    const words = new OwnerWords("ledger");
    const onLine = (line: string) => {
      this.#parts.onLogLine(line);
      words.take(line);
    };
    const gate = new LineGate(this.#parts.powers.monotonicMs);
    const lines = createLineSplitter(LOG_LIMITS.lineBytesMax, onLine, gate);
    child.stderr.on("data", (chunk: Buffer) => lines.push(chunk));
    const saidAll = new Promise<void>((resolve) => {
      child.stderr.on("end", () => {
        lines.end();
        resolve();
      });
    });
    return { words, saidAll };
  }

  #linked([producer, reader, maintainer]: readonly Peer[], startedMs: number): void {
    if (producer === undefined || reader === undefined || maintainer === undefined) return;
    const { powers, log, onChange } = this.#parts;
    this.link = new LedgerLink({ producer, reader, maintainer }, powers.monotonicMs);
    this.#comesSinceMs = null;
    this.state = "ok";
    this.reason = null;
    log("info", "ledger ready", { pid: this.pid, start_ms: Math.round(powers.monotonicMs() - startedMs) });
    onChange();
  }

  /** One channel that ends is the end of all: a process without one of its roles is of no use. */
  async #watchEnd(life: Life, words: OwnerWords, startedMs: number): Promise<void> {
    const { child, peers } = life;
    let exit: OwnerExit | null = null;
    const exited = child.exited.then((value) => {
      exit = value;
    });
    await Promise.race([exited, ...peers.map(({ ended }) => ended)]);
    this.#comesSinceMs = null;
    const hasWorked = this.#unlink(life);
    for (const peer of peers) peer.close();
    if (!this.#isStopped) {
      // Its channels are gone, so nothing that it still does can be heard of.
      if (!(await settledWithin(exited, TIMES.lastWordsTimeoutMs))) child.kill();
      await settledWithin(exited, TIMES.killTimeoutMs);
    }
    await settledWithin(life.saidAll, TIMES.lastWordsTimeoutMs);
    if (this.#isStopped) return;
    this.#report(words, child.pid ?? 0, exit);
    this.#life = null;
    this.#lost(howOf(exit), startedMs, hasWorked);
  }

  /** False: it never had a link. */
  #unlink(life: Life): boolean {
    if (this.#life?.child !== life.child || this.link === null) return false;
    this.link = null;
    this.#awaySinceMs = this.#parts.powers.monotonicMs();
    this.state = "away";
    this.reason = "its process ended and is being started again";
    this.#parts.onChange();
    return true;
  }

  /** One that was killed from outside has nothing to say; that is told all the same. */
  #report(words: OwnerWords, pid: number, exit: OwnerExit | null): void {
    const { powers, keepPanic, log } = this.#parts;
    const how = howOf(exit);
    log("error", "ledger ended", { pid, how });
    if (LAUNCH_STEPS[exit?.code ?? 0] !== undefined) return;
    keepPanic(words.panic({ pid, time: new Date(powers.nowMs()), how, vmId: null }));
  }

  #lost(how: string, startedMs: number, hasWorked: boolean): void {
    const livedMs = this.#parts.powers.monotonicMs() - startedMs;
    this.#deaths = livedMs >= LEDGER_LIMITS.youngMs ? 1 : this.#deaths + 1;
    this.reason = how;
    // A first start that fails once is still a start.
    if (this.#deaths > 1) this.state = "away";
    const msMax = LEDGER_LIMITS.restartMsMax[hasWorked ? "worked" : "failed"];
    const ms = Math.min(LEDGER_LIMITS.restartMsMin * 2 ** (this.#deaths - 1), msMax);
    this.#restart = setTimeout(() => this.#begin(), ms);
    this.#restart.unref();
    this.#parts.onChange();
  }

  #endSilent(): void {
    const { silenceMs, mostMs } = this.#silence();
    if (silenceMs <= mostMs) return;
    this.#parts.log("error", "ledger hangs and is ended", {
      pid: this.pid,
      silence_ms: Math.round(silenceMs),
    });
    this.#life?.child.kill();
  }

  /** One that never came to work is waited for as well: nothing else would start another. */
  #silence(): { silenceMs: number; mostMs: number } {
    if (this.link !== null) return { silenceMs: this.link.silenceMs(), mostMs: LEDGER_LIMITS.silenceMsMax };
    const nowMs = this.#parts.powers.monotonicMs();
    return { silenceMs: nowMs - (this.#comesSinceMs ?? nowMs), mostMs: LEDGER_LIMITS.linkTimeoutMs };
  }
}

interface Life {
  readonly child: LedgerChild;
  readonly peers: readonly Peer[];
  /** Its stderr has ended. */
  readonly saidAll: Promise<void>;
}

function howOf(exit: OwnerExit | null): string {
  if (exit === null) return "its channel ended";
  const step = LAUNCH_STEPS[exit.code ?? 0];
  if (step === "landlock") {
    return "this machine cannot confine it (docs/confinement.md); `allow_unconfined` starts it without";
  }
  if (step !== undefined) return `its launcher failed at its step "${step}"`;
  return exit.message ?? (exit.signal === null ? `exit code ${exit.code}` : `signal ${exit.signal}`);
}
