import { Failure } from "@capsem/base";
import { PROXY_LIMITS } from "../limits.ts";
import type { Input } from "./exchange.ts";
import type { Params } from "./params.ts";
import type { Run } from "./run.ts";

/** Whose it is, and what it was: another client, or another call, does not go on with it. */
export interface Binding {
  readonly taintKey: string;
  readonly method: string;
  /** Of what is called, with its arguments. */
  readonly paramsText: string;
}

/** What of the parameters stays the same from one leg to the next. */
export function boundText({ _meta: _m, inputResponses: _r, requestState: _s, ...rest }: Params): string {
  return JSON.stringify(rest);
}

interface Held {
  readonly run: Run;
  readonly binding: Binding;
}

const PREFIX = "capsem:";
const TOKEN_BYTES = 18;

/** Whether a state is one of ours; any other is a server's own. */
export function isHeldState(state: unknown): state is string {
  return typeof state === "string" && state.startsWith(PREFIX);
}

/** Calls of clients of the newer protocol that wait at a server of the older one until their client comes back. */
export class HeldCalls {
  readonly #random: (bytes: number) => Uint8Array;
  readonly #held = new Map<string, Held>();

  constructor(random: (bytes: number) => Uint8Array) {
    this.#random = random;
  }

  get size(): number {
    return this.#held.size;
  }

  /** The state to come back with; undefined: too many are held. */
  hold(run: Run, binding: Binding): string | undefined {
    if (this.#held.size >= PROXY_LIMITS.heldCallsMax) return undefined;
    const state = `${PREFIX}${Buffer.from(this.#random(TOKEN_BYTES)).toString("base64url")}`;
    this.#held.set(state, { run, binding });
    return state;
  }

  drop(state: string): void {
    this.#held.delete(state);
  }

  /** Whose they are is gone for good. */
  end(taintKey: string, reason: Failure): void {
    for (const [state, { run, binding }] of this.#held) {
      if (binding.taintKey !== taintKey) continue;
      this.#held.delete(state);
      run.abort(reason);
    }
  }

  /** Once. Throws Failure("invalid_params") for a state that is none, or not of this call. */
  take(state: string, { taintKey, method, paramsText }: Binding): Run {
    const held = this.#held.get(state);
    const { binding } = held ?? {};
    const isSame =
      binding?.taintKey === taintKey && binding.method === method && binding.paramsText === paramsText;
    if (held === undefined || !isSame) {
      throw new Failure("invalid_params", "Cannot go on: the request state is invalid or its time is over");
    }
    this.#held.delete(state);
    return held.run;
  }
}

/** The answer that asks. */
export function questionText(inputs: ReadonlyMap<string, Input>, state: string): string {
  const requests = [...inputs].map(([key, { method, paramsText }]) => {
    const params = paramsText === undefined ? "" : `,"params":${paramsText}`;
    return `${JSON.stringify(key)}:{"method":${JSON.stringify(method)}${params}}`;
  });
  return `{"resultType":"input_required","inputRequests":{${requests.join(",")}},"requestState":${JSON.stringify(state)}}`;
}
