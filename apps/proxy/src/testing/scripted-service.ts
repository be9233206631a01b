// The service's end of a proxy's channel, with what a test wants to see of it.
import { duplexPair } from "node:stream";
import {
  type ContractParams,
  decodeFacts,
  PROXY_SERVICE_METHODS,
  type ProxyFact,
  proxyFact,
  type ToolPin,
} from "@capsem/api";
import { createPeer, type Handler, type Peer } from "@capsem/rpc";
import type { DuplexLike } from "@capsem/wire";
import * as z from "zod";

type Methods = typeof PROXY_SERVICE_METHODS;
export type Ask = ContractParams<Methods, "ask.hold">;
type AskState = "approved" | "denied" | "expired" | "cancelled" | "pending";
type Ready = ContractParams<Methods, "worker.ready">;
export interface HeldAsk {
  readonly ask: Ask;
  readonly signal: AbortSignal;
  resolve(state: AskState): void;
}
export type CallFact = Extract<ProxyFact, { kind: "call" }>;
export type DecisionFact = Extract<ProxyFact, { kind: "decision" }>;

export class ScriptedService {
  readonly facts: ProxyFact[] = [];
  readonly appends: number[] = [];
  readonly asks: HeldAsk[] = [];
  readonly reports: ContractParams<Methods, "pins.report">[] = [];
  readonly health: ContractParams<Methods, "server.health">[] = [];
  readonly needs: string[] = [];
  /** What is known of tools; without a word of one, what a server says first is approved. */
  readonly pins = new Map<string, ToolPin>();
  /** Before a report counts; it may throw. */
  onReport: (report: ContractParams<Methods, "pins.report">) => void = () => undefined;
  /** For many calls: facts are taken, and neither checked nor kept. */
  keepsNothing = false;
  onNeed: (kind: "aggregator" | "builtin") => void = () => undefined;
  peer: Peer | undefined;
  #onReady: (said: Ready) => void = () => undefined;

  /** The proxy's end. */
  start(): DuplexLike {
    const [near, far] = duplexPair();
    this.over(near);
    return far;
  }

  /** `said` is what the proxy says of itself when it is ready. */
  over(duplex: DuplexLike): { peer: Peer; said: Promise<Ready> } {
    const peer = createPeer({
      role: "host",
      duplex,
      handlers: this.#handlers(),
      onInternalError: (_, thrown) => {
        throw thrown;
      },
    });
    this.peer = peer;
    const said = new Promise<Ready>((resolve) => {
      this.#onReady = resolve;
    });
    return { peer, said };
  }

  call(method: string, params: unknown, timeoutMs = 10_000): Promise<unknown> {
    return this.peer?.call(method, params, { timeoutMs }) ?? Promise.reject(new Error("not started"));
  }

  get calls(): CallFact[] {
    return this.facts.filter((fact): fact is CallFact => fact.kind === "call");
  }

  get decisions(): DecisionFact[] {
    return this.facts.filter((fact): fact is DecisionFact => fact.kind === "decision");
  }

  decisionsOf(type: string): DecisionFact[] {
    return this.decisions.filter(({ event }) => event.type === type);
  }

  /** Each is checked as the real one would be. */
  #handlers(): Record<string, Handler> {
    const on = <M extends keyof Methods & string>(
      method: M,
      run: (params: ContractParams<Methods, M>, signal: AbortSignal) => Promise<unknown>,
    ): Record<string, Handler> => ({
      [method]: async (raw, { signal }) =>
        run(PROXY_SERVICE_METHODS[method].params.parse(raw) as ContractParams<Methods, M>, signal),
    });
    return {
      ...on("worker.ready", async (said) => {
        this.#onReady(said);
        return {};
      }),
      ...on("worker.need", async ({ kind }) => {
        this.needs.push(kind);
        queueMicrotask(() => this.onNeed(kind));
        return {};
      }),
      "facts.append": async (raw) => {
        if (this.keepsNothing) return {};
        const message = PROXY_SERVICE_METHODS["facts.append"].params.parse(raw);
        const facts = z.array(proxyFact).parse(decodeFacts(message));
        this.appends.push(facts.length);
        this.facts.push(...facts);
        return {};
      },
      ...on("ask.hold", (ask, signal) => this.#hold(ask, signal)),
      ...on("pins.report", async (report) => {
        this.reports.push(report);
        this.onReport(report);
        return { pins: report.tools.map(({ name, hash }) => this.#pinOf(report.server, name, hash)) };
      }),
      ...on("server.health", async (health) => {
        this.health.push(health);
        return {};
      }),
    };
  }

  #pinOf(server: string, tool: string, hash: string): ToolPin {
    const known = this.pins.get(`${server} ${tool}`);
    return known ?? { server, tool, state: "pinned", approved_hash: hash, approved: null };
  }

  #hold(ask: Ask, signal: AbortSignal): Promise<unknown> {
    return new Promise((resolve) => {
      const answer = (state: AskState) =>
        resolve({ state, ask_id: "ask_abcdefghij234567", note: null, retryable: state === "pending" });
      signal.addEventListener("abort", () => answer("cancelled"), { once: true });
      this.asks.push({ ask, signal, resolve: answer });
    });
  }
}
