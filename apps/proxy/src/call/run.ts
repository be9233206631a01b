import { Failure, ignore } from "@capsem/base";
import type { Answer, Caller } from "./caller.ts";
import type { Exchange, Input } from "./exchange.ts";
import { type Binding, type HeldCalls, questionText } from "./held-calls.ts";

export interface RunOptions {
  readonly exchange: Exchange;
  /** To the end, with all that is recorded of it. Called once. */
  readonly work: () => Promise<Answer>;
  readonly held: HeldCalls;
  /** Asked for where it is held. */
  readonly binding: () => Binding;
  /** It waits for a person now, and takes no place meanwhile. */
  readonly onHeld: () => void;
}

/** What a server does for a client, which may take several of the client's requests: a leg each. */
export class Run {
  readonly #options: RunOptions;
  #final: Promise<Answer> | undefined;
  #open: ReadonlyMap<string, Input> = new Map();

  constructor(options: RunOptions) {
    this.#options = options;
  }

  /** `responses` are those to the questions that the last leg ended with, by their keys. */
  async leg(caller: Caller, responses: ReadonlyMap<string, string> = new Map()): Promise<Answer> {
    const { exchange, work } = this.#options;
    if (caller.era === "legacy") {
      // Its signal is that of the exchange.
      this.#final ??= work();
      return this.#final;
    }
    if (caller.signal.aborted) exchange.abort(caller.signal.reason as Failure);
    exchange.caller = caller;
    // It stays: until the question has left the request may be cancelled, and nobody would come back with an answer.
    const onAbort = () => exchange.abort(caller.signal.reason as Failure);
    caller.signal.addEventListener("abort", onAbort, { once: true });
    this.#answer(responses);
    this.#final ??= work();
    ignore(this.#final);
    const came = await Promise.race([this.#final, exchange.inputCame()]);
    return came ?? this.#question();
  }

  /** Nobody comes back for it. */
  abort(reason: Failure): void {
    this.#options.exchange.abort(reason);
  }

  #answer(responses: ReadonlyMap<string, string>): void {
    for (const [key, { done, method }] of this.#open) {
      const text = responses.get(key);
      if (text === undefined) done.reject(new Failure("unreachable", `The client does not answer ${method}`));
      else done.resolve({ kind: "result", text });
    }
    this.#open = new Map();
  }

  /** Ends the leg; the run goes on when the client comes back. */
  #question(): Answer | Promise<Answer> {
    const { exchange, held, binding, onHeld } = this.#options;
    const inputs = new Map(exchange.takeInputs().map((input, index) => [`input_${index + 1}`, input]));
    // The server has gone on without an answer: it is over.
    if (inputs.size === 0) return this.#final ?? failed();
    onHeld();
    const state = held.hold(this, binding());
    if (state === undefined) {
      const busy = new Failure("busy", "Cannot ask the client: too many calls wait for theirs");
      for (const { done } of inputs.values()) done.reject(busy);
      exchange.abort(busy);
      return this.#final ?? failed();
    }
    this.#open = inputs;
    this.#final?.then(
      () => held.drop(state),
      () => held.drop(state),
    );
    return { kind: "result", text: questionText(inputs, state) };
  }
}

function failed(): never {
  throw new Failure("internal", "Cannot end the call: it has not begun");
}
