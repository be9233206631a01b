import type { AskInfo } from "@capsem/api";
import type { Client } from "@capsem/sdk";
import { placeOf, type Scope, shortId, timeLeft } from "./ask-text.ts";
import { toFailure } from "./cli-error.ts";
import { resolvedText } from "./command/asks.ts";
import type { Context } from "./context.ts";
import { KEY_GUARD_MS } from "./limits.ts";
import { NoteLine } from "./note-line.ts";
import { paintOf } from "./paint.ts";
import { printable } from "./render.ts";

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
  /** The reason for a no, while it is typed. */
  #note: { readonly id: string; readonly line: NoteLine } | null = null;

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
      if (this.#note?.id === ask.id) await this.#leaveNote();
      await this.#line(resolvedText(ask));
    }
    await this.#show();
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder();
    for await (const bytes of this.#context.powers.stdin.bytes()) {
      for (const key of decoder.decode(bytes, { stream: true })) {
        if (this.#note !== null) await this.#noteKey(this.#note, key);
        else if (key === "q" || key === CONTROL_C || key === CONTROL_D) return;
        else await this.#key(key);
      }
    }
  }

  async #key(key: string): Promise<void> {
    const ask = this.#queue[0];
    if (ask === undefined || ask.id !== this.#shownId || this.#answering !== null) return;
    if (this.#context.powers.now() - this.#shownAtMs < KEY_GUARD_MS) return;
    if (key === "s") {
      this.#queue = [...this.#queue.slice(1), ask];
      await this.#showAgain();
    } else if (key === "n") {
      this.#note = { id: ask.id, line: new NoteLine() };
      await this.#context.output.print("  why not (Enter for no reason, Ctrl-C to go back): ");
    } else {
      const scope = keysOf(ask).find(([each]) => each === key)?.[1];
      if (scope !== undefined) this.#answer(ask.id, { approve: true, scope });
    }
  }

  async #noteKey({ id, line }: { readonly id: string; readonly line: NoteLine }, key: string): Promise<void> {
    const typed = line.key(key);
    if (typed.kind === "echo") {
      await this.#context.output.print(typed.text);
      return;
    }
    await this.#leaveNote();
    if (typed.kind === "left") await this.#showAgain();
    else this.#answer(id, { approve: false, ...(typed.text === "" ? {} : { note: typed.text }) });
  }

  async #leaveNote(): Promise<void> {
    this.#note = null;
    await this.#context.output.print("\n");
  }

  /** Its event tells that it is answered; a refusal has none, and the question stands again. */
  #answer(id: string, resolution: Parameters<Client["asks"]["resolve"]>[1]): void {
    this.#answering = id;
    this.#asks.resolve(id, resolution).then(undefined, async (thrown: unknown) => {
      this.#answering = null;
      await this.#line(toFailure(thrown).message);
      await this.#showAgain();
    });
  }

  async #showAgain(): Promise<void> {
    this.#shownId = null;
    await this.#show();
  }

  async #show(): Promise<void> {
    const ask = this.#queue[0];
    if (ask === undefined || ask.id === this.#shownId) return;
    // What is being typed is about another one, and would be torn apart.
    if (this.#note !== null) return;
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

const KEYS: readonly [string, Scope, string][] = [
  ["y", "once", "yes, this once"],
  ["v", "vm", "yes, in this VM"],
  ["a", "always", "always, by a rule"],
];

/** What the ask cannot be approved for has no key. */
function keysOf({ scopes }: AskInfo): readonly [string, Scope, string][] {
  return KEYS.filter(([, scope]) => scopes.includes(scope));
}
