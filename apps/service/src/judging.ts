import { messageOf } from "@capsem/base";
import { AskBook } from "./ask/ask-book.ts";
import { startTimer } from "./ask/timer.ts";
import { createBoundary } from "./boundary/boundary.ts";
import type { Boundary } from "./boundary/parts.ts";
import { vmFactsOf } from "./boundary/vm-draft.ts";
import { refuseSecrets } from "./credential/clear-text.ts";
import { CredentialBook } from "./credential/credential-book.ts";
import type { SecretRedactor } from "./credential/redactor.ts";
import type { EventHub } from "./events/event-hub.ts";
import type { HomeLayout } from "./home/layout.ts";
import type { ServiceKeys } from "./ledger/key-files.ts";
import type { LedgerClient } from "./ledger/ledger-client.ts";
import { pastDecisions } from "./ledger/past-decisions.ts";
import { Retention } from "./ledger/retention.ts";
import { startLedger } from "./ledger/start-ledger.ts";
import type { LineRedactor } from "./log/line-redactor.ts";
import type { ServiceLog } from "./log/service-log.ts";
import type { Tools } from "./mcp/open-tools.ts";
import type { KnownTools } from "./policy/known-call.ts";
import { PolicyChanges } from "./policy/policy-changes.ts";
import type { PolicyStore } from "./policy/policy-store.ts";
import type { Powers } from "./powers.ts";
import { askRoutes } from "./routes/ask-routes.ts";
import { evidenceRoutes } from "./routes/evidence-routes.ts";
import type { EvidenceHandlers } from "./routes/index.ts";
import { policyRoutes } from "./routes/policy-routes.ts";
import type { Registry } from "./vm/registry.ts";
import type { VmWatch } from "./vm/vm-watch.ts";

export interface JudgingParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly policy: PolicyStore;
  readonly keys: ServiceKeys;
  readonly redactor: SecretRedactor;
  readonly redact: LineRedactor;
  readonly events: EventHub;
  readonly registry: Registry;
  /** Asked when somebody wants to know what would be decided of a call. */
  readonly knownTools: KnownTools;
  readonly log: ServiceLog;
}

/** All that stands between a request and what it wants: rules, asks, credentials, the ledger, and their routes. */
export interface Judging {
  readonly ledger: LedgerClient;
  readonly boundary: Boundary;
  readonly asks: AskBook;
  readonly credentials: CredentialBook;
  /** Refuses what holds a secret, and passes the boundary. */
  readonly policyEdit: PolicyChanges["edit"];
  readonly handlers: Omit<EvidenceHandlers, keyof Tools["handlers"]>;
  /** Whose VM runs no more has its ledger finished; whose VM is gone keeps no approvals. */
  watching(watch: VmWatch): VmWatch;
  /** Every row of it committed, its head signed and in its checkpoint. Never rejects. */
  finish(id: string): Promise<void>;
  /** Of the service's sweep. Never rejects. */
  pass(): Promise<void>;
}

const MIB = 1024 ** 2;

/** Throws Failure "credential_unreadable": what could not be kept out of logs must be looked at first. */
export async function openJudging(parts: JudgingParts): Promise<Judging> {
  const { layout, powers, policy, keys, redactor, redact, events, registry, log } = parts;
  const { nowMs, monotonicMs, random } = powers;
  const vmBytesMax = () => policy.settings()["ledger.vm_mib_max"] * MIB;
  const ledger = startLedger({
    ...{ layout, powers, key: keys.head, redact, log, vmBytesMax: vmBytesMax() },
    allowUnconfined: () => policy.settings()["confinement.allow_unconfined"],
  });
  policy.hold({
    name: "ledger",
    accept: () =>
      ledger.vmBytesMax === vmBytesMax() ? Promise.resolve() : ledger.setVmBytesMax(vmBytesMax()),
    replace: () => Promise.resolve(),
  });
  const asks = await AskBook.open({
    ...{ folder: layout.asks, ledger, redactor, log, nowMs, monotonicMs, random, startTimer },
    waits: () => {
      const settings = policy.settings();
      return {
        timeoutMs: settings["asks.timeout_secs"] * 1000,
        unattendedMs: settings["asks.unattended_secs"] * 1000,
      };
    },
    watcherCount: () => events.watcherCount,
    tell: (ask) => events.asked(ask),
    writeRule: (context, edit) => policyEdit(context, [edit]),
    hasVm: (id) => registry.has(id),
  });
  const { digestKey } = keys;
  const boundary = createBoundary({
    ...{ policy, ledger, redactor, asks, nowMs, monotonicMs, random, log, digestKey },
  });
  const changes = new PolicyChanges(policy, boundary);
  const policyDigest = () => policy.snapshot().digest;
  const credentials = await CredentialBook.open({
    ...{ folder: layout.credentials, redactor, boundary, policyDigest, nowMs, random },
  });
  const policyEdit: PolicyChanges["edit"] = async (context, edits) => {
    refuseSecrets(edits, { redactor, credentials });
    await changes.edit(context, edits);
  };
  const retention = new Retention({
    ...{ layout, ledger, boundary, policyDigest, nowMs, monotonicMs, log },
    hasVm: (id) => registry.has(id),
    limits: () => ({
      days: policy.settings()["ledger.retention_days"],
      totalMib: policy.settings()["ledger.total_mib_max"],
    }),
  });
  const finish = async (id: string) => {
    try {
      await ledger.finish(id);
    } catch (thrown) {
      log("error", "a ledger was not finished", { vm_id: id, cause: messageOf(thrown) });
    }
  };
  return {
    ...{ ledger, boundary, asks, credentials, policyEdit },
    handlers: {
      ...policyRoutes({
        ...{ policy, nowMs, knownTools: parts.knownTools },
        policyChanges: { edit: policyEdit, reload: (context) => changes.reload(context) },
        vmFacts: (id) => vmFactsOf(registry.get(id).record),
        decisionsOf: (id, asked) => pastDecisions(ledger, id, asked),
      }),
      ...askRoutes({ asks, credentials, servers: () => policy.snapshot().servers }),
      ...evidenceRoutes({ powers, registry, ledger, boundary, policyDigest, redactor, log }),
    },
    finish,
    watching: (watch) => ({
      ...watch,
      changed(vm) {
        watch.changed(vm);
        if (vm.record.state === "stopped" || vm.record.state === "failed") void finish(vm.id);
      },
      gone(vm, lastState) {
        watch.gone(vm, lastState);
        asks.forgetVm(vm.id);
        void finish(vm.id);
      },
    }),
    async pass() {
      await Promise.allSettled([asks.sweep(), retention.pass()]);
    },
  };
}
