import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { LedgerRow } from "@capsem/api";
import { Failure } from "@capsem/base";
import { afterEach } from "vitest";
import type { AnyRow } from "../boundary/parts.ts";
import { createHome, homeLayout } from "../home/layout.ts";
import { openKeys } from "../ledger/key-files.ts";
import type { LedgerClient } from "../ledger/ledger-client.ts";
import { startLedger } from "../ledger/start-ledger.ts";
import { FakeLedger, type FakeLedgerFaults } from "./fake-ledger.ts";

export const VM = "vm_aaaaaaaaaaaaaaaa";
const uid = process.getuid?.() ?? -1;

export interface LedgerRig {
  readonly client: LedgerClient;
  readonly fake: FakeLedger;
  readonly home: string;
  readonly log: Record<string, unknown>[];
  advance(ms: number): void;
}

/** Clients with a fake ledger each, ended with the test that started them. */
export function useLedgers() {
  const rigs: LedgerRig[] = [];
  afterEach(async () => {
    for (const { client, fake } of rigs.slice().reverse()) {
      if (fake.faults.isMute === true) {
        fake.faults.isMute = false;
        fake.die();
      }
      await client.close();
    }
    for (const { home } of rigs.splice(0)) rmSync(home, { recursive: true, force: true });
  });

  return async (
    faults: FakeLedgerFaults = {},
    options: { home?: string; vmBytesMax?: number } = {},
  ): Promise<LedgerRig> => {
    const home = options.home ?? realpathSync(mkdtempSync(join(tmpdir(), "capsem-ledger-")));
    const layout = homeLayout(home);
    await createHome(layout, uid);
    const fake = new FakeLedger(faults);
    const log: Record<string, unknown>[] = [];
    let aheadMs = 0;
    const client = startLedger({
      layout,
      powers: {
        startLedger: fake.startLedger,
        nowMs: () => Date.now(),
        monotonicMs: () => performance.now() + aheadMs,
        random: (bytes) => crypto.getRandomValues(new Uint8Array(bytes)),
      },
      key: openKeys(layout.keys, uid).head,
      vmBytesMax: options.vmBytesMax ?? 1024 ** 3,
      allowUnconfined: () => false,
      log: (level, message, fields = {}) => void log.push({ level, message, ...fields }),
    });
    const rig = {
      ...{ client, fake, home, log },
      advance: (ms: number) => {
        aheadMs += ms;
      },
    };
    rigs.push(rig);
    return rig;
  };
}

const who = { trace_id: null, turn_id: null, requester: "user uid 1", client: null, token_id: null };
const decided = { decision: "allow", rule_id: "r", reason: "", error: null, duration_ms: 1 };

export function body(n: number, text = "x"): AnyRow {
  return {
    table: "event_body_blobs",
    row: { hash: `h${n}`, kind: "event", original_bytes: 1, is_truncated: false, body: text },
  };
}

export function decision(eventId: string, type = "process.exec"): AnyRow {
  const row: LedgerRow<"security_decision_events"> = {
    ...{ event_id: eventId, time_ms: 1, ...who, type, action: "allow", rule_id: "r", reason: "" },
    ...{ detection: "none", policy_digest: "d", matched: "[]", event_hash: "h", is_redacted: false },
    event: null,
  };
  return { table: "security_decision_events", row };
}

export function lifecycle(eventId: string, action: string): AnyRow {
  return {
    table: "lifecycle_events",
    row: {
      ...{ event_id: eventId, time_ms: 1, ...who, action, vm_name: null, image: null, detail: null },
      ...{ ...decided, outcome: "done" },
    },
  };
}

export function kindOf(work: () => unknown): string {
  try {
    work();
    return "taken";
  } catch (thrown) {
    return thrown instanceof Failure ? thrown.kind : `no failure: ${thrown}`;
  }
}

export async function kindOfLater(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => "done",
    (thrown: unknown) => (thrown instanceof Failure ? thrown.kind : `no failure: ${thrown}`),
  );
}

export const opens = (fake: FakeLedger) => fake.opened.filter(({ ledger }) => ledger === VM);
export const hashes = (fake: FakeLedger, ledger = VM) =>
  fake.rows(ledger, "event_body_blobs").map(({ hash }) => hash);
export const numbered = (count: number) => Array.from({ length: count }, (_, n) => `h${n}`);

export function append(client: LedgerClient, from: number, to: number, ledger = VM): void {
  for (let n = from; n < to; n++) client.appendAll(ledger, [body(n)]);
}
