import { Socket } from "node:net";
import type { LedgerPlan } from "@capsem/api";
import { messageOf, within } from "@capsem/base";
import type { Seal } from "@capsem/jail";
import { createPeer, type Peer } from "@capsem/rpc";
import type { Log } from "@capsem/worker";
import { Ledgers } from "./ledgers.ts";
import { APP_LIMITS } from "./limits.ts";
import { methodsOf } from "./methods.ts";
import { KeeperThread, WriterThread } from "./thread.ts";

export interface LifeParts {
  readonly plan: LedgerPlan;
  /** The program's own file. */
  readonly program: string;
  readonly seal: Seal;
  readonly log: Log;
  readonly now: () => number;
  readonly die: (message: string, cause: unknown) => void;
  /** Resolves when it is told to end from outside. */
  readonly told: Promise<void>;
}

/** The life of one ledger process: threads, seal, channels, and an end in order when the last channel has ended. */
export async function live({ plan, program, seal, log, now, die, told }: LifeParts): Promise<void> {
  const state = { isEnding: false };
  const threadOptions = {
    ...{ program, root: plan.folder, bytesMax: plan.vm_bytes_max },
    onDeath: (kind: string, cause: unknown) => {
      if (!state.isEnding) die(`the ${kind} thread ended`, cause);
    },
  };
  const onFault = (ledger: string, fault: string) =>
    log("error", "a log is not written back", { ledger, fault });
  const writer = new WriterThread(threadOptions);
  const keeper = new KeeperThread({ ...threadOptions, onFault });
  await Promise.all([writer.ready, keeper.ready]);
  const startedAt = now();
  const { missing, notes, probes } = await seal.close();
  if (notes.length > 0) log("warning", "a second wall is missing", { notes });
  if (missing.length > 0) log("warning", "ledger is not confined", { missing });
  else log("info", "ledger confined", { probes: probes.length, took_ms: Math.round(now() - startedAt) });
  const ledgers = new Ledgers({ root: plan.folder, writer, keeper, log, now });
  const peers = openChannels(plan, ledgers, log);
  const ended = peers.map(async ({ peer, role, producer }) => {
    await peer.ended;
    const isLast = !peers.some(
      (other) => other.role === role && other.producer === producer && other.isOpen(),
    );
    if (role === "producer" && isLast) await endProducer(writer, producer, log);
  });
  await sayReady(peers, { unconfined: [...missing], notes: [...notes] });
  await Promise.race([Promise.all(ended), told]);
  for (const { peer } of peers) peer.close();
  await Promise.all(ended);
  state.isEnding = true;
  ledgers.end();
  const failures = await within(writer.call("end", null), APP_LIMITS.endTimeoutMs);
  for (const failure of failures) log("error", "a ledger could not be ended", { failure });
  await within(keeper.end(), APP_LIMITS.endTimeoutMs);
  log("info", "ledger ended");
}

interface Channel {
  readonly peer: Peer;
  readonly role: string;
  readonly producer: string;
  isOpen(): boolean;
}

function openChannels(plan: LedgerPlan, ledgers: Ledgers, log: Log): Channel[] {
  return plan.channels.map(({ role, producer, fd }) => {
    const peer = createPeer({
      role: "guest",
      duplex: new Socket({ fd, readable: true, writable: true }),
      ...methodsOf(role, producer, ledgers),
      onInternalError: (method, thrown) => {
        const cause = thrown instanceof Error ? thrown.stack : String(thrown);
        log("error", "a call failed", { method, cause });
      },
    });
    let isOpen = true;
    void peer.ended.then(() => {
      isOpen = false;
    });
    return { peer, role, producer, isOpen: () => isOpen };
  });
}

async function endProducer(writer: WriterThread, producer: string, log: Log): Promise<void> {
  const failures = await writer.call("endProducer", { producer });
  for (const failure of failures) log("error", "acts could not be ended", { producer, failure });
}

async function sayReady(
  channels: readonly Channel[],
  params: { unconfined: string[]; notes: string[] },
): Promise<void> {
  const told = channels.map(({ peer }) =>
    peer.call("ledger.ready", params, { timeoutMs: APP_LIMITS.readyTimeoutMs }).catch((cause: unknown) => {
      // A channel that has ended by now ends its part of the process; one that says nothing is of no use.
      peer.close();
      return messageOf(cause);
    }),
  );
  await Promise.all(told);
}
