import type { ContractResult, FactToSend, FactWho, PROXY_SERVICE_METHODS, ProxyFact } from "@capsem/api";
import { EventIds, Failure } from "@capsem/base";
import type { Facts } from "../facts.ts";
import type { Judgement, Person } from "../judge/judge.ts";
import { PROXY_LIMITS } from "../limits.ts";
import type { Clock } from "../parts.ts";
import type { ServiceLink } from "../service-link.ts";

export type AskEnd = ContractResult<typeof PROXY_SERVICE_METHODS, "ask.hold">;
export type NetFact = Extract<ProxyFact, { kind: "net" }>;
export type CallFact = Extract<FactToSend, { kind: "call" }>;

export interface RecorderParts {
  readonly facts: Facts;
  readonly service: Pick<ServiceLink, "call">;
  readonly clock: Clock;
  readonly random: (bytes: number) => Uint8Array;
}

/** What is judged and how it ends, as facts; and a person's word, where a rule wants one. */
export class Recorder {
  readonly #parts: RecorderParts;
  readonly #ids: EventIds;
  #asking = 0;

  constructor(parts: RecorderParts) {
    this.#parts = parts;
    this.#ids = new EventIds(parts.random);
  }

  who(person: Person): FactWho {
    const { trace_id, turn_id, requester, client, token_id } = person;
    return {
      event_id: this.#ids.next(),
      time_ms: this.#parts.clock.nowMs(),
      trace_id,
      turn_id,
      requester,
      client,
      token_id,
    };
  }

  /**
   * Before it is judged: undefined where its intent has room, or is refused; else resolves when it has. Throws
   * Failure("ledger_away"), and the reason of the signal.
   */
  room(bytes: number, timeoutMs: number, signal: AbortSignal): Promise<void> | undefined {
    return this.#parts.facts.room(bytes, timeoutMs, signal);
  }

  /**
   * Before anything of it is done. Throws Failure where it cannot be recorded. `bytes` are those of its payload;
   * `hasWaited`: for its room. `isEarly`: it is allowed, and waits for a place. Returns its place on the channel, for
   * `sent`.
   */
  intent(judgement: Judgement, bytes: number, hasWaited = false, isEarly = false): number {
    return this.#parts.facts.takeIntent(decisionFact(judgement), bytes, hasWaited, isEarly);
  }

  /** Of what came back, or was refused: it is sent whatever the credit is. */
  noted(judgement: Judgement, bytes: number): void {
    this.#parts.facts.takeEnd(decisionFact(judgement), bytes);
  }

  end(fact: CallFact, bytes: number): void {
    this.#parts.facts.takeEnd(fact, bytes);
  }

  /** What was never let in. Throws Failure where it cannot be recorded. */
  refused(fact: NetFact): void {
    this.#parts.facts.takeIntent(fact, fact.net.host.length + (fact.net.path?.length ?? 0));
  }

  /** Undefined: the intent of this place is on the channel; else resolves when it is. Throws the reason of the signal. */
  sent(place: number, signal: AbortSignal): Promise<void> | undefined {
    return this.#parts.facts.sent(place, signal);
  }

  /** Waits for a person. Throws Failure "cancelled" by the signal, and what the service throws. */
  async ask(
    { who, event, stored, decision }: Judgement,
    title: string,
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<AskEnd> {
    if (event === null) throw new Failure("internal", "Cannot ask: there is no event");
    const { type, fields, ...identity } = stored;
    const params = {
      who,
      event: { type, ...identity, fields },
      decision: { ...decision },
      title,
      is_later: false,
    };
    if (this.#asking >= PROXY_LIMITS.asksOpenMax) {
      throw new Failure("busy", `Cannot ask: ${this.#asking} acts wait for a person`, { retryable: true });
    }
    this.#asking += 1;
    try {
      const options = signal === undefined ? { timeoutMs } : { timeoutMs, signal };
      return await this.#parts.service.call("ask.hold", params, options);
    } catch (thrown) {
      throw signal?.aborted === true ? signal.reason : thrown;
    } finally {
      this.#asking -= 1;
    }
  }
}

function decisionFact({ who, stored, decision, snapshot }: Judgement): ProxyFact {
  return {
    kind: "decision",
    who,
    policy_digest: snapshot.digest,
    event: stored as unknown as ProxyFactEvent,
    decision: decision as unknown as ProxyFactDecision,
  };
}

type Decided = Extract<ProxyFact, { kind: "decision" }>;
type ProxyFactEvent = Decided["event"];
type ProxyFactDecision = Decided["decision"];
