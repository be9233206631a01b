import type { AskInfo } from "@capsem/api";
import type { Client } from "@capsem/sdk";
import { placeOf, shortId, timeLeft } from "./ask-text.ts";
import { toFailure } from "./cli-error.ts";
import { resolvedText } from "./command/asks.ts";
import type { Context } from "./context.ts";
import { KEY_GUARD_MS } from "./limits.ts";
import { paintOf } from "./paint.ts";
import { printable } from "./render.ts";

type Scope = "once" | "vm" | "always";
const CONTROL_C = "\x03";
const CONTROL_D = "\x04";

/** Asks on a terminal, one at a time: the oldest is shown with the keys that answer it, the others wait behind it. */
export class AskDesk {
  readonly #context: Context;
  readonly #asks: Client["asks"];
  readonly #onEnd: () => void;
  #queue: AskInfo[] = [];
  #shownId: string | null = null;
  #shownAtMs = 0;
  /** Its answer is under way: a second key answers nothing. */
  #answering: string | null = null;

  constructor(context: Context, asks: Client["asks"], onEnd: () => void) {
    this.#context = context;
    this.#asks = asks;
    this.#onEnd = onEnd;
  }

  async open(): Promise<void> {
    const { stdin } = this.#context.powers;
    stdin.setRaw(true);
    await this.#context.output.line("waiting for asks; q ends");
    this.#read().then(this.#onEnd, this.#onEnd);
  }

  /** Gives the terminal back. */
  close(): void {
    this.#context.powers.stdin.setRaw(false);
  }

  async ask(ask: AskInfo): Promise<void> {
    if (ask.state === "pending") {
      if (!this.#queue.some(({ id }) => id === ask.id)) this.#queue.push(ask);
    } else {
      this.#queue = this.#queue.filter(({ id }) => id !== ask.id);
      if (this.#answering === ask.id) this.#answering = null;
      await this.#line(resolvedText(ask));
    }
    await this.#show();
  }

  async #read(): Promise<void> {
    for await (const bytes of this.#context.powers.stdin.bytes()) {
      for (const key of Buffer.from(bytes).toString("latin1")) {
        if (key === "q" || key === CONTROL_C || key === CONTROL_D) return;
        await this.#key(key);
      }
    }
  }

  async #key(key: string): Promise<void> {
    const ask = this.#queue[0];
    if (ask === undefined || ask.id !== this.#shownId || this.#answering !== null) return;
    if (this.#context.powers.now() - this.#shownAtMs < KEY_GUARD_MS) return;
    if (key === "s") {
      this.#queue = [...this.#queue.slice(1), ask];
      this.#shownId = null;
      await this.#show();
      return;
    }
    const scope = keysOf(ask).find(([each]) => each === key)?.[1];
    if (scope === undefined && key !== "n") return;
    this.#answering = ask.id;
    const resolution = scope === undefined ? { approve: false } : { approve: true, scope };
    // Its event tells that it is answered; a refusal has none, and the ask may be answered again.
    this.#asks.resolve(ask.id, resolution).then(undefined, async (thrown: unknown) => {
      this.#answering = null;
      await this.#line(toFailure(thrown).message);
    });
  }

  async #show(): Promise<void> {
    const ask = this.#queue[0];
    if (ask === undefined || ask.id === this.#shownId) return;
    const { powers } = this.#context;
    this.#shownId = ask.id;
    this.#shownAtMs = powers.now();
    const paint = paintOf(powers);
    const more = this.#queue.length > 1 ? `, ${this.#queue.length - 1} more behind it` : "";
    const keys = [...keysOf(ask).map(([key, , text]) => `${key} ${text}`), "n no", "s later", "q end"];
    await this.#context.output.print(
      [
        "",
        `${paint(shortId(ask.id), "bold")}  ${paint(printable(ask.title), "cyan")}`,
        `  in ${printable(placeOf(ask))}, ${timeLeft(ask, powers.now())}${more}`,
        `  rule ${printable(ask.rule_id)}${ask.reason === "" ? "" : `: ${printable(ask.reason)}`}`,
        `  asked by ${printable(ask.requester)}${ask.client === null ? "" : `, ${printable(ask.client)}`}`,
        `  ${keys.join(" · ")}`,
        "",
      ].join("\n"),
    );
  }

  async #line(text: string): Promise<void> {
    await this.#context.output.line(text);
  }
}

/** A corporation's ask has no "always", and one of the machine no VM to allow it in. */
function keysOf(ask: AskInfo): [string, Scope, string][] {
  return [
    ["y", "once", "yes, this once"],
    ...(ask.vm_id === null ? [] : ([["v", "vm", "yes, in this VM"]] as [string, Scope, string][])),
    ...(ask.rule_id.startsWith("corp.") ? [] : ([["a", "always", "always"]] as [string, Scope, string][])),
  ];
}
