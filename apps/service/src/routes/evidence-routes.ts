import { apiFailure, EVIDENCE_LIMITS, HOST_LEDGER, LAYERS, type LedgerInfo } from "@capsem/api";
import { messageOf, NAME_PATTERN } from "@capsem/base";
import type { MuxStream } from "@capsem/wire";
import { type ActContext, requesterText } from "../act.ts";
import type { Boundary, Redactor } from "../boundary/parts.ts";
import { type Answer, type Handlers, json } from "../http/handler.ts";
import { archiveDraft } from "../ledger/archive-act.ts";
import type { LedgerClient } from "../ledger/ledger-client.ts";
import { LEDGER_LIMITS } from "../ledger/limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { Powers } from "../powers.ts";
import { sinceMsOf } from "../trouble/since.ts";
import type { Registry } from "../vm/registry.ts";

export interface EvidenceParts {
  readonly powers: Pick<Powers, "nowMs" | "random">;
  readonly registry: Pick<Registry, "has" | "get">;
  readonly ledger: LedgerClient;
  readonly boundary: Pick<Boundary, "pass">;
  readonly policyDigest: () => string;
  readonly redactor: Redactor;
  readonly log: ServiceLog;
}

/** What the ledgers say, of VMs that are there and of those that are gone. Rows that were taken are in the answers. */
export function evidenceRoutes(parts: EvidenceParts) {
  const { powers, registry, ledger } = parts;
  const { pageRowsDefault: limitDefault } = EVIDENCE_LIMITS;
  const paged = (
    id: string,
    query: { since?: string | undefined; cursor?: string | undefined; limit?: number | undefined },
  ) => {
    const sinceMs = sinceMsOf(query.since, powers.nowMs());
    return {
      ledger: id,
      limit: query.limit ?? limitDefault,
      ...(sinceMs === null ? {} : { since_ms: sinceMs }),
      ...(query.cursor === undefined ? {} : { cursor: query.cursor }),
    };
  };
  return {
    timeline: async ({ params, query, context }) => {
      const request = {
        ...paged(params.id, query),
        layers: layersOf(query.layers),
        newest: query.newest ?? false,
        ...(query.trace_id === undefined ? {} : { trace_id: query.trace_id }),
      };
      return json(await ledger.read("read.timeline", request, context.signal));
    },
    history: async ({ params, query, context }) => {
      const { limit = limitDefault, offset = 0, search } = query;
      const request = { ledger: params.id, limit, offset, ...(search === undefined ? {} : { search }) };
      return json(await ledger.read("read.history", request, context.signal));
    },
    vmStats: async ({ params, context }) =>
      json(await ledger.read("read.stats", { ledger: params.id }, context.signal)),
    vmStatsDetail: async ({ params, context }) =>
      json(await ledger.read("read.detail", { ledger: params.id }, context.signal)),
    securityEvents: async ({ params, query, context }) => {
      const { action, type, rule_id: ruleId } = query;
      const request = {
        ...paged(params.id, query),
        ...(action === undefined ? {} : { action }),
        ...(type === undefined ? {} : { type }),
        ...(ruleId === undefined ? {} : { rule_id: ruleId }),
      };
      return json(await ledger.read("read.decisions", request, context.signal));
    },
    ledgers: async ({ context }) => {
      const ledgers = await ledger.list(context.signal);
      return json({ ledgers: ledgers.map((found) => infoOf(found, registry)) });
    },
    ledgerVerify: async ({ params, context }) => {
      const request = {
        ledger: params.vm_id,
        checkpoint: await ledger.checkpointOf(params.vm_id),
        public_key: ledger.publicKey,
      };
      const { verifyTimeoutMs } = LEDGER_LIMITS;
      const result = await ledger.read("read.verify", request, context.signal, verifyTimeoutMs);
      const { fault } = result;
      if (fault !== null) ledger.foundBroken(params.vm_id, fault.message);
      return json(result);
    },
    ledgerArchive: async ({ params, context }) => {
      const { vm_id: id } = params;
      checkArchivable(parts, id);
      const draft = archiveDraft(id, parts.policyDigest());
      const name = await parts.boundary.pass(context, draft, async (permit) => {
        const archived = await ledger.archive(id, context.signal);
        permit.add({ after: archived });
        return archived;
      });
      // The broken one could not say it; the new one does.
      if (id === HOST_LEDGER) recordArchive(parts, id, name, context);
      return json({ vm_id: id, name });
    },
    ledgerExport: async ({ params, context }): Promise<Answer<"ledgerExport">> => {
      const stream = await ledger.export(params.vm_id, context.signal);
      return {
        kind: "bytes",
        headers: { "content-type": "application/x-ndjson" },
        pump: (write) => pumped(stream, write),
      };
    },
  } satisfies Partial<Handlers>;
}

function layersOf(text: string | undefined): string[] {
  if (text === undefined) return [...LAYERS];
  const names = text.split(",");
  const unknown = names.find((name) => !LAYERS.some((layer) => layer === name));
  if (unknown === undefined) return [...new Set(names)];
  throw apiFailure("invalid_input", `Cannot show layer "${unknown}": there are ${LAYERS.join(", ")}`);
}

type Listed = Awaited<ReturnType<LedgerClient["list"]>>[number];

/** A VM that is there has the name that it has now; of one that is gone the ledger knows the last. */
function infoOf(
  { vm_id, name, rows, bytes, first_ms, last_ms, archived }: Listed,
  registry: EvidenceParts["registry"],
): LedgerInfo {
  const hasVm = registry.has(vm_id);
  const lastName = name !== null && NAME_PATTERN.test(name) ? name : null;
  return {
    vm_id,
    name: hasVm ? registry.get(vm_id).record.name : lastName,
    has_vm: hasVm,
    ...{ rows, bytes, archived },
    first_time: timeOf(first_ms),
    last_time: timeOf(last_ms),
  };
}

function timeOf(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}

/** A VM that runs writes to it; the service's own is always written to, unless it is broken. */
function checkArchivable({ registry, ledger }: EvidenceParts, id: string): void {
  const isBroken = ledger.broken.some((each) => each.ledger === id);
  if (id === HOST_LEDGER && !isBroken) {
    throw apiFailure("wrong_state", "Cannot set the service's ledger aside: it is whole, and in use");
  }
  if (!registry.has(id)) return;
  const { state } = registry.get(id).record;
  if (state === "stopped" || state === "failed") return;
  throw apiFailure("wrong_state", `Cannot set the ledger of VM "${id}" aside: the VM is ${state}`);
}

/** In the service's new ledger, of the one before it. */
function recordArchive(parts: EvidenceParts, id: string, name: string, context: ActContext): void {
  const { ledger, powers, redactor, log } = parts;
  const requester = requesterText(context.requester);
  const said = (text: string | null) => (text === null ? null : redactor.text(text).text);
  log("warning", "a ledger was set aside", { vm_id: id, name, requester });
  try {
    ledger.append(HOST_LEDGER, "policy_mutations", {
      event_id: Buffer.from(powers.random(6)).toString("hex"),
      time_ms: powers.nowMs(),
      trace_id: context.traceId,
      turn_id: said(context.turn),
      requester,
      client: said(context.client),
      token_id: context.tokenId,
      ...{ key: "ledger.archive", source: "user", before: id, after: name },
      ...{ digest_before: "none", digest_after: null, decision: "allow", rule_id: "none" },
      ...{ reason: "a person set it aside", outcome: "done", error: null, duration_ms: null },
    });
  } catch (thrown) {
    log("error", "what was done is not in the ledger", { vm_id: id, cause: messageOf(thrown) });
  }
}

/** At the client's pace. */
async function pumped(stream: MuxStream, write: (chunk: Uint8Array) => Promise<void>): Promise<void> {
  try {
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) await write(chunk);
    stream.end();
  } catch (thrown) {
    stream.reset("cancelled");
    throw thrown;
  }
}
