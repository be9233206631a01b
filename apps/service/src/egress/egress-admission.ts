import { type ContractParams, type ContractResult, EGRESS_SERVICE_METHODS, HOST_SCOPE } from "@capsem/api";
import { EventIds, Failure, messageOf } from "@capsem/base";
import { judgeUrl, parseUrl, type Target } from "@capsem/net";
import type { PolicySnapshot, ServerInForce } from "@capsem/policy";
import type { Handler, Peer, RpcContext } from "@capsem/rpc";
import type { ActContext, Principal } from "../act.ts";
import type { Boundary, LedgerWriter, OpenAct, Redactor, VmFacts } from "../boundary/parts.ts";
import type { Who } from "../boundary/rows.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { type Dialled, NO_TARGET, netFacts, netRow, requestDraft } from "./dial-rows.ts";
import { type Lender, lentHeaders } from "./lend.ts";
import { EGRESS_ADMISSION_LIMITS } from "./limits.ts";
import { type DialEnd, OpenDials } from "./open-dials.ts";
import { type Lookup, Resolver } from "./resolve.ts";

type Asked = ContractParams<typeof EGRESS_SERVICE_METHODS, "egress.admit">;
type Admitted = ContractResult<typeof EGRESS_SERVICE_METHODS, "egress.admit">;

export interface AdmissionParts {
  readonly snapshot: () => Pick<PolicySnapshot, "servers">;
  readonly boundary: Pick<Boundary, "pass">;
  readonly ledger: Pick<LedgerWriter, "append" | "ready">;
  readonly redactor: Redactor;
  readonly credentials: Lender;
  /** Null: there is no such VM. */
  readonly vm: (id: string) => VmFacts | null;
  /** Who stands behind calls of the host's own scope. */
  readonly host: Principal;
  readonly lookup: Lookup;
  /** `HOST:PORT` that builtin tools may be sent to beside the Internet; none by default. */
  readonly builtinGrants?: () => readonly string[];
  readonly nowMs: () => number;
  readonly monotonicMs: () => number;
  readonly random: (bytes: number) => Uint8Array;
  readonly log: ServiceLog;
}

/** Rows say these where no rule of a person's decided. */
const RULES = {
  declared: "egress.declared_server",
  address: "egress.address",
  origin: "egress.origin",
  credential: "egress.credential",
} as const;

interface Client {
  readonly name: string;
  readonly kind: "aggregator" | "builtin";
  readonly vm: VmFacts | null;
  readonly ledger: string;
}

/**
 * What may leave, and how: the one place where names become addresses and references become secrets. A declared server
 * is dialled at its own origin, by a lease; each request of a builtin tool passes the boundary by itself.
 */
export class EgressAdmission {
  readonly #parts: AdmissionParts;
  readonly #resolver: Resolver;
  readonly #ids: EventIds;
  #open: OpenDials;
  #peer: Pick<Peer, "call"> | null = null;

  constructor(parts: AdmissionParts) {
    this.#parts = parts;
    this.#resolver = new Resolver(parts.lookup);
    this.#ids = new EventIds(parts.random);
    this.#open = new OpenDials(parts.monotonicMs);
  }

  /** For one life of egress; `peer` calls it. What an earlier life has not ended is ended. */
  handlers(peer: Pick<Peer, "call">): Readonly<Record<string, Handler>> {
    this.lost();
    this.#peer = peer;
    const open = new OpenDials(this.#parts.monotonicMs);
    this.#open = open;
    return {
      "egress.admit": (raw, context) => this.#admit(parsed("egress.admit", raw), context, open),
      "egress.done": async (raw) => {
        const { lease, ...end } = parsed("egress.done", raw);
        // Who has lost an answer says so of what may never have been.
        if (!open.end(lease, end) && end.error !== "cancelled")
          this.#parts.log("warning", "a lease ended that is none", { lease });
        return {};
      },
    };
  }

  /** That life is over: what it held of leases and requests has ended. Idempotent. */
  lost(): void {
    this.#peer = null;
    this.#open.endAll();
  }

  get openCount(): number {
    return this.#open.size;
  }

  /**
   * Rules or settings are others: leases of servers that are declared otherwise hold no more. Throws where egress does
   * not say that it knows: it must not go on then.
   */
  async rulesChanged(): Promise<void> {
    const { servers } = this.#parts.snapshot();
    await this.#revoke(({ server, declaration }) => {
      const now = server === null ? undefined : servers.get(server);
      return now === undefined || declarationOf(now) !== declaration;
    });
  }

  /** Never rejects. */
  async credentialForgotten(ref: string): Promise<void> {
    try {
      await this.#revoke(({ refs }) => refs.includes(ref));
    } catch (thrown) {
      this.#parts.log("error", "a lease was not taken back", { credential: ref, cause: messageOf(thrown) });
    }
  }

  async #revoke(isGone: Parameters<OpenDials["serversWhere"]>[0]): Promise<void> {
    const peer = this.#peer;
    const calls = this.#open.serversWhere(isGone).map(async (server) => {
      try {
        await peer?.call("egress.revoke", { client: null, server }, REVOKING);
      } catch (thrown) {
        // With its process all of it is gone.
        if (!(thrown instanceof Failure && thrown.kind === "peer_lost")) throw thrown;
      }
    });
    await Promise.all(calls);
  }

  async #admit(asked: Asked, context: RpcContext, open: OpenDials): Promise<Admitted> {
    const client = this.#clientOf(asked.client);
    if (open.isFull)
      throw new Failure("quota", "Cannot dial: too many connections are open", { retryable: true });
    if (client.kind === "builtin" && asked.server === null)
      return this.#admitRequest(asked, client, context, open);
    if (client.kind === "aggregator" && asked.server !== null) {
      return this.#admitServer(asked, asked.server, client, context, open);
    }
    throw new Failure("policy", `Cannot dial: it is nothing that the ${client.kind} asks for`);
  }

  /** Who asks is what the service itself named the channel. */
  #clientOf(name: string): Client {
    const [kind, scope = ""] = name.split(":", 2);
    const isHost = scope === HOST_SCOPE;
    const vm = isHost ? null : this.#parts.vm(scope);
    if ((kind !== "aggregator" && kind !== "builtin") || (!isHost && vm === null)) {
      throw new Failure("not_found", `Cannot dial: there is no ${JSON.stringify(name.slice(0, 80))}`);
    }
    return { name, kind, vm, ledger: scope };
  }

  async #admitServer(
    asked: Asked,
    server: string,
    client: Client,
    { signal }: RpcContext,
    open: OpenDials,
  ): Promise<Admitted> {
    const declared = this.#declared(server);
    const declaration = declarationOf(declared);
    const who = this.#who(client, asked.trace_id);
    const judged = judgeUrl(asked.url, declared.grants);
    const dialled = dialledOf("connection", server, judged.kind === "ok" ? judged.target : null, asked);
    const refuse = (rule: string, reason: string) => this.#refused(client, who, dialled, rule, reason);
    if (judged.kind === "refused") throw refuse(RULES.address, judged.reason);
    const { target } = judged;
    const own = parseUrl(declared.url);
    if (own.kind === "refused" || own.parts.origin !== target.origin) {
      throw refuse(RULES.origin, `${target.origin} is not where the tool server "${server}" is declared`);
    }
    const { ledger } = this.#parts;
    const [resolved] = await Promise.all([
      this.#resolver.resolve(target, signal),
      ledger.ready(client.ledger, signal),
    ]);
    if (resolved.kind === "refused") throw refuse(RULES.address, resolved.reason);
    const lent = lentHeaders(declared.headers, target, resolved.addresses, this.#parts.credentials);
    if (lent.kind === "refused") throw refuse(RULES.credential, lent.reason);
    // It was asked for by what was declared then.
    if (declarationOf(this.#declared(server)) !== declaration) {
      throw new Failure("policy", `Cannot dial ${target.host}: its declaration has just changed`, {
        retryable: true,
      });
    }
    if (signal.aborted) throw new Failure("cancelled", `Cannot dial ${target.host}: its caller has gone`);
    const added = { addresses: JSON.stringify(resolved.addresses), credential_ref: lent.refs[0] ?? null };
    const { lease } = asked;
    open.add(lease, {
      ...{ client: client.name, server, declaration, refs: lent.refs, sinceMs: this.#parts.monotonicMs() },
      end: (end) => this.#ended(client, who, dialled, added, end),
    });
    return {
      ...{ lease, lease_ms: EGRESS_ADMISSION_LIMITS.leaseMs, addresses: [...resolved.addresses] },
      ...{ headers: lent.headers, secrets: lent.secrets, event_id: who.event_id },
    };
  }

  /** Rules judge it before its name is looked up: a question to the DNS tells somebody too. */
  async #admitRequest(asked: Asked, client: Client, rpc: RpcContext, open: OpenDials): Promise<Admitted> {
    const judged = judgeUrl(asked.url, this.#parts.builtinGrants?.() ?? []);
    if (judged.kind === "refused") {
      const dialled = dialledOf("http.request", null, null, asked);
      throw this.#refused(client, this.#who(client, asked.trace_id), dialled, RULES.address, judged.reason);
    }
    const { target } = judged;
    const draft = requestDraft(client.vm, asked.method, target, asked.headers);
    return this.#parts.boundary.pass(this.#context(client, asked, rpc), draft, async (permit) => {
      const act = permit.keep();
      const resolved = await this.#resolver.resolve(target, rpc.signal).catch((thrown: unknown) => {
        closeFailed(act, thrown);
        throw thrown;
      });
      if (resolved.kind === "refused") {
        act.close("failed", RULES.address);
        const facts = { rule_id: RULES.address };
        throw new Failure("policy", `Cannot fetch from ${target.host}: ${resolved.reason}`, { facts });
      }
      act.add({ addresses: JSON.stringify(resolved.addresses) });
      if (rpc.signal.aborted) {
        act.close("cancelled", "cancelled");
        throw new Failure("cancelled", "Cannot fetch: its caller has gone");
      }
      const { lease } = asked;
      const sinceMs = this.#parts.monotonicMs();
      open.add(lease, {
        ...{ client: client.name, server: null, declaration: "", refs: [], sinceMs },
        end: (end) => closeAct(act, end),
      });
      return {
        ...{ lease, lease_ms: 0, addresses: [...resolved.addresses], headers: [], secrets: [] },
        event_id: permit.eventId,
      };
    });
  }

  #declared(server: string): ServerInForce {
    const found = this.#parts.snapshot().servers.get(server);
    if (found?.isEnabled === true) return found;
    throw new Failure("not_found", `Cannot dial: no tool server "${server.slice(0, 32)}" is declared`);
  }

  /** Recorded, and what the client gets. */
  #refused(client: Client, who: Who, dialled: Dialled, rule_id: string, reason: string): Failure<"policy"> {
    const verdict = { action: "block", rule_id, reason } as const;
    this.#append(client, () =>
      netRow(who, netFacts(dialled), {}, verdict, NOTHING_DONE, this.#parts.redactor),
    );
    const { text } = this.#parts.redactor.text(`Cannot ${doing(dialled)}: ${reason}`);
    return new Failure("policy", text, { facts: { rule_id } });
  }

  #ended(
    client: Client,
    who: Who,
    dialled: Dialled,
    added: Readonly<Record<string, string | null>>,
    end: DialEnd | null,
  ): void {
    const reason = `the tool server "${dialled.server ?? ""}" is declared there`;
    const verdict = { action: "allow", rule_id: RULES.declared, reason } as const;
    const { outcome, error } = outcomeOf(end);
    const bytes = { bytes_sent: end?.bytes_sent ?? null, bytes_received: end?.bytes_received ?? null };
    const done = { outcome, error, durationMs: end?.duration_ms ?? null };
    this.#append(client, () =>
      netRow(who, netFacts(dialled), { ...added, ...bytes }, verdict, done, this.#parts.redactor),
    );
  }

  #append(client: Client, rowOf: () => ReturnType<typeof netRow>): void {
    try {
      this.#parts.ledger.append(client.ledger, "net_events", rowOf());
    } catch (thrown) {
      const cause = messageOf(thrown);
      this.#parts.log("error", "a connection is not in the ledger", { client: client.name, cause });
    }
  }

  #who({ vm }: Client, traceId: string | null): Who {
    return {
      ...{ event_id: this.#ids.next(), time_ms: this.#parts.nowMs(), trace_id: traceId, turn_id: null },
      ...{ requester: vm === null ? "service" : "guest", client: null, token_id: null },
    };
  }

  #context({ vm }: Client, { trace_id }: Asked, { signal, timeLeftMs, trace }: RpcContext): ActContext {
    return {
      requester: vm === null ? this.#parts.host : { kind: "guest", name: "guest" },
      ...{ client: null, tokenId: null, trace: trace ?? "", traceId: trace_id ?? "", turn: null },
      ...{ asks: "hold", timeLeftMs: timeLeftMs ?? null, signal },
    };
  }
}

const REVOKING = { timeoutMs: 5_000 } as const;
const NOTHING_DONE = { outcome: "blocked", error: null, durationMs: null } as const;

function dialledOf(
  kind: Dialled["kind"],
  server: string | null,
  target: Target | null,
  asked: Asked,
): Dialled {
  if (target !== null) return { kind, server, target, method: asked.method };
  const read = parseUrl(asked.url);
  return { kind, server, target: read.kind === "ok" ? read.parts : NO_TARGET, method: asked.method };
}

/** In the words of whoever reads it: nobody outside knows which process dials. */
function doing({ server, target: { host } }: Dialled): string {
  if (server !== null) return `connect to tool server ${JSON.stringify(server)}`;
  return host === "" ? "fetch" : `fetch from ${host}`;
}

/** All of it that a lease hangs on; the values of headers too. */
function declarationOf({ url, isEnabled, grants, headers }: ServerInForce): string {
  return JSON.stringify([url, isEnabled, grants, [...headers]]);
}

/** Kinds that are none of the API's; the boundary itself would call them internal. */
function closeFailed(act: OpenAct, thrown: unknown): void {
  const kind = thrown instanceof Failure ? thrown.kind : "internal";
  act.close(kind === "cancelled" ? "cancelled" : "failed", kind);
}

function closeAct(act: OpenAct, end: DialEnd | null): void {
  if (end !== null) {
    const { status, bytes_sent, bytes_received } = end;
    act.add({ status, bytes_sent, bytes_received });
  }
  const { outcome, error } = outcomeOf(end);
  act.close(outcome, error ?? undefined);
}

function outcomeOf(end: DialEnd | null): {
  outcome: "done" | "failed" | "cancelled" | "interrupted";
  error: string | null;
} {
  if (end === null) return { outcome: "interrupted", error: "egress ended" };
  const { error } = end;
  if (error === null) return { outcome: "done", error };
  return { outcome: error === "cancelled" || error === "revoked" ? "cancelled" : "failed", error };
}

function parsed<M extends "egress.admit" | "egress.done">(
  method: M,
  raw: unknown,
): ContractParams<typeof EGRESS_SERVICE_METHODS, M> {
  const found = EGRESS_SERVICE_METHODS[method].params.safeParse(raw);
  if (found.success) return found.data as ContractParams<typeof EGRESS_SERVICE_METHODS, M>;
  const issue = found.error.issues[0];
  throw new Failure("invalid_input", `Cannot call ${method}: ${issue?.path.join(".")} ${issue?.message}`);
}
