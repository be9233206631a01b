import { messageOf } from "@capsem/base";
import type { Principal } from "../act.ts";
import type { AskBook } from "../ask/ask-book.ts";
import type { Boundary } from "../boundary/parts.ts";
import { vmFactsOf } from "../boundary/vm-draft.ts";
import type { CredentialBook } from "../credential/credential-book.ts";
import type { SecretRedactor } from "../credential/redactor.ts";
import { EgressAdmission } from "../egress/egress-admission.ts";
import type { HomeLayout } from "../home/layout.ts";
import type { LedgerClient } from "../ledger/ledger-client.ts";
import type { LineRedactor } from "../log/line-redactor.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { KnownTools } from "../policy/known-call.ts";
import type { PolicyChanges } from "../policy/policy-changes.ts";
import type { PolicyHolder } from "../policy/policy-holders.ts";
import type { PolicyStore } from "../policy/policy-store.ts";
import type { Powers } from "../powers.ts";
import { mcpRoutes } from "../routes/mcp-routes.ts";
import { writePanic } from "../trouble/panic.ts";
import type { Registry } from "../vm/registry.ts";
import type { VmWatch } from "../vm/vm-watch.ts";
import { Cells } from "./cells.ts";
import { EgressProcess } from "./egress-process.ts";
import { holdAsk } from "./guest-asks.ts";
import { PinBook } from "./pin-book.ts";
import type { LinkParts } from "./proxy-link.ts";
import { SnapshotBook } from "./snapshot-book.ts";
import { ToolServers } from "./tool-servers.ts";
import { WorkerLogs } from "./worker-logs.ts";
import type { WorkerParts } from "./worker-process.ts";

export interface ToolsParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly policy: PolicyStore;
  readonly policyEdit: PolicyChanges["edit"];
  readonly boundary: Boundary;
  readonly ledger: LedgerClient;
  readonly asks: AskBook;
  readonly redactor: SecretRedactor;
  readonly redact: LineRedactor;
  /** Of what approvals are bound to. */
  readonly digestKey: Uint8Array;
  readonly credentials: CredentialBook;
  /** Who stands behind calls of the host's own. */
  readonly user: Principal;
  readonly registry: Registry;
  readonly log: ServiceLog;
}

/** All that carries tool calls: their processes, what is known of servers, and the routes of both. */
export interface Tools {
  readonly handlers: ReturnType<typeof mcpRoutes>;
  readonly cells: Cells;
  readonly egress: EgressProcess;
  readonly pins: PinBook;
  readonly known: KnownTools;
  /** A VM that runs has its place for tool calls. */
  watching(watch: VmWatch): VmWatch;
  /** Every process has ended, and what they did is with the ledger. Idempotent. */
  close(): Promise<void>;
}

export async function openTools(parts: ToolsParts): Promise<Tools> {
  const { layout, powers, policy, boundary, registry, redact, log } = parts;
  const { monotonicMs, nowMs } = powers;
  const snapshot = () => policy.snapshot();
  const servers: ToolServers = new ToolServers({ snapshot, pins: () => pins });
  const changed = () => {
    servers.changed();
    cells.serversChanged();
  };
  const pins: PinBook = await PinBook.open({
    ...{ folder: layout.mcp, boundary, policyDigest: () => snapshot().digest, nowMs, log },
    isServed: (name) => servers.isServed(name),
    onChange: changed,
  });
  const logs = new WorkerLogs(layout.logs, redact, log);
  const worker = workerParts(parts, logs);
  const admission = admissionOf(parts);
  const egress = new EgressProcess({ worker, service: admission, log });
  const cells: Cells = new Cells({ worker, egress, log, monotonicMs, link: linkParts(parts, servers, pins) });
  // Before any proxy: what it is told of comes with the new rules.
  holdServers(policy, servers, admission, egress);
  return {
    handlers: mcpRoutes({
      ...{ policy, servers, pins, cells, registry, monotonicMs },
      policyEdit: parts.policyEdit,
    }),
    ...{ cells, egress, pins },
    known: (server, tool) => servers.known(server, tool),
    watching: (watch) => cells.watching(watch),
    async close() {
      await cells.close();
      await egress.close();
      await Promise.all([pins.close(), logs.close()]);
    },
  };
}

/** An egress that does not give up in time what it may hold no more is replaced. */
function holdServers(
  policy: PolicyStore,
  servers: ToolServers,
  admission: EgressAdmission,
  egress: EgressProcess,
): void {
  const holder: PolicyHolder = {
    name: "tool servers",
    async accept() {
      servers.changed();
      await admission.rulesChanged();
    },
    async replace({ message }) {
      await egress.condemn(message);
      policy.hold(holder);
    },
  };
  policy.hold(holder);
}

/** The one place where what leaves is admitted; what a credential allowed ends with it. */
function admissionOf(parts: ToolsParts): EgressAdmission {
  const { powers, policy, boundary, ledger, redactor, credentials, registry, user, log } = parts;
  const { lookup, nowMs, monotonicMs, random } = powers;
  const admission = new EgressAdmission({
    ...{ boundary, ledger, redactor, credentials, lookup, nowMs, monotonicMs, random, log },
    snapshot: () => policy.snapshot(),
    vm: (id) => (registry.has(id) ? vmFactsOf(registry.get(id).record) : null),
    host: user,
  });
  credentials.onForgotten((ref) => void admission.credentialForgotten(ref));
  return admission;
}

function workerParts({ layout, powers, policy, log }: ToolsParts, logs: WorkerLogs): WorkerParts {
  return {
    ...{ powers, log },
    allowUnconfined: () => policy.settings()["confinement.allow_unconfined"],
    onLogLine: (kind, scope, line) => logs.append(kind, scope, line),
    keepPanic(panic) {
      try {
        writePanic(layout.panics, panic);
      } catch (thrown) {
        log("error", "cannot keep a panic", { ...panic, cause: messageOf(thrown) });
      }
    },
  };
}

function linkParts(parts: ToolsParts, servers: ToolServers, pins: PinBook): LinkParts {
  const { policy, ledger, redactor, asks, digestKey, log } = parts;
  const snapshot = () => policy.snapshot();
  return {
    ...{ ledger, redactor, log },
    rules: new SnapshotBook(() => policy.state),
    holdPolicy: (holder) => policy.hold(holder),
    serverSet: () => servers.set(),
    holdAsk: (held, vm, context) => holdAsk({ asks, snapshot, digestKey }, held, vm, context),
    reportPins: (report, reporter) => {
      servers.answered(report.server);
      return pins.report(report, reporter);
    },
    onAnswered: (server) => servers.answered(server),
    reportHealth: (health) => servers.note(health),
  };
}
