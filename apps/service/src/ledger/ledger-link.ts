import {
  LEDGER_METHODS,
  type LedgerMethod,
  type LedgerParams,
  type LedgerResult,
  type LedgerRole,
} from "@capsem/api";
import { assert, Failure, Slots } from "@capsem/base";
import type { CallOptions, Peer } from "@capsem/rpc";
import type { MuxStream } from "@capsem/wire";
import { LEDGER_LIMITS } from "./limits.ts";

type Peers = { readonly [R in LedgerRole]: Peer };

/** The channels of one life of the ledger process. Failures are those of the contract, and of rpc. */
export class LedgerLink {
  readonly #peers: Peers;
  readonly #nowMs: () => number;
  readonly #slots = bySlots();
  #open = 0;
  #walks = 0;
  #heardMs = 0;

  constructor(peers: Peers, nowMs: () => number) {
    this.#peers = peers;
    this.#nowMs = nowMs;
  }

  async call<R extends LedgerRole, M extends LedgerMethod<R> & string>(
    role: R,
    method: M,
    params: LedgerParams<R, M>,
    options: CallOptions = {},
  ): Promise<LedgerResult<R, M>> {
    const isWalk = method === "read.verify" || (params as { readonly whole?: boolean }).whole === true;
    const result = await this.#listened(role, () => this.#peers[role].call(method, params, options), isWalk);
    return parsed(role, method, result);
  }

  /** The stream is the caller's to end or reset. */
  async open<R extends LedgerRole, M extends LedgerMethod<R> & string>(
    role: R,
    method: M,
    params: LedgerParams<R, M>,
    options: CallOptions = {},
  ): Promise<{ result: LedgerResult<R, M>; stream: MuxStream }> {
    const { result, stream } = await this.#listened(
      role,
      () => this.#peers[role].open(method, params, options),
      false,
    );
    return { result: parsed(role, method, result), stream };
  }

  /** How long it has answered nothing, while something was asked; 0 when nobody waits, or it walks a whole chain. */
  silenceMs(): number {
    return this.#open === 0 || this.#walks > 0 ? 0 : this.#nowMs() - this.#heardMs;
  }

  async #listened<T>(role: LedgerRole, work: () => Promise<T>, isWalk: boolean): Promise<T> {
    const taken = this.#slots[role].take();
    if (taken === null)
      throw new Failure("too_many_streams", "Cannot call the ledger: too many calls wait for it");
    if (this.#open === 0) this.#heardMs = this.#nowMs();
    this.#open += 1;
    if (isWalk) this.#walks += 1;
    const leave = await taken;
    try {
      return await work();
    } finally {
      leave();
      this.#open -= 1;
      if (isWalk) this.#walks -= 1;
      this.#heardMs = this.#nowMs();
    }
  }
}

/** A channel has room for so many calls; hundreds of ledgers take their turn. */
function bySlots(): Readonly<Record<LedgerRole, Slots>> {
  const slots = () => new Slots(LEDGER_LIMITS.callsMax, LEDGER_LIMITS.callsWaitingMax);
  return { producer: slots(), reader: slots(), maintainer: slots() };
}

function parsed<R extends LedgerRole, M extends LedgerMethod<R> & string>(
  role: R,
  method: M,
  result: unknown,
): LedgerResult<R, M> {
  const methods: Readonly<
    Record<string, { readonly result: { safeParse(value: unknown): { success: boolean } } }>
  > = LEDGER_METHODS[role];
  assert(
    methods[method]?.result.safeParse(result).success === true,
    `the ledger answered ${method} in another shape`,
  );
  return result as LedgerResult<R, M>;
}
