import { join } from "node:path";
import { HOST_LEDGER, type Panic } from "@capsem/api";
import { ignore, messageOf, newId } from "@capsem/base";
import type { HomeLayout } from "../home/layout.ts";
import { type LineRedactor, plainLines } from "../log/line-redactor.ts";
import { LogFile } from "../log/log-file.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { Powers } from "../powers.ts";
import { writePanic } from "../trouble/panic.ts";
import { Checkpoints } from "./checkpoints.ts";
import type { HeadKey } from "./key-files.ts";
import { LedgerClient } from "./ledger-client.ts";
import { LedgerProcess } from "./ledger-process.ts";

export interface LedgerStart {
  readonly layout: HomeLayout;
  readonly powers: Pick<Powers, "startLedger" | "nowMs" | "monotonicMs" | "random">;
  readonly key: HeadKey;
  /** `ledger.vm_mib_max` of this moment, in bytes; later ones by `setVmBytesMax`. */
  readonly vmBytesMax: number;
  /** `confinement.allow_unconfined`, asked at each start of the process. */
  readonly allowUnconfined: () => boolean;
  /** Of what the process says. */
  readonly redact?: LineRedactor;
  readonly log: ServiceLog;
}

/** Starts the ledger process and answers at once: whoever has rows for it need not wait until it runs. */
export function startLedger({
  layout,
  powers,
  key,
  vmBytesMax,
  allowUnconfined,
  redact = plainLines,
  log,
}: LedgerStart): LedgerClient {
  const file = new LogFile(join(layout.logs, "ledger.jsonl"), {
    redact,
    onError: (thrown) => log("error", "cannot write the ledger's log", { cause: messageOf(thrown) }),
  });
  const process = new LedgerProcess({
    powers,
    folder: layout.ledgers,
    vmBytesMax: () => client.vmBytesMax,
    allowUnconfined,
    onLogLine: (line) => file.append(line),
    keepPanic: (panic) => keepPanic(layout, panic, log),
    onChange: () => client.linkChanged(),
    onStopped: () => file.close(),
    log,
  });
  const client = new LedgerClient({
    layout,
    process,
    key,
    checkpoints: new Checkpoints(layout.checkpoints, key),
    newGeneration: () => newId("gen", powers.random),
    monotonicMs: powers.monotonicMs,
    vmBytesMax,
    log,
  });
  process.start();
  // Whatever comes first, it needs the service's own.
  ignore(client.ready(HOST_LEDGER));
  return client;
}

/** Where the disk does not take it, the log has it at least. */
function keepPanic(layout: HomeLayout, panic: Panic, log: ServiceLog): void {
  try {
    writePanic(layout.panics, panic);
  } catch (thrown) {
    log("error", "cannot keep a panic", { ...panic, cause: messageOf(thrown) });
  }
}
