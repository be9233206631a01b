// One upstream as tests use it: what it told, and calls of it.
import { setMaxListeners } from "node:events";
import type { ProxyServer } from "@capsem/api";
import { onTestFinished } from "vitest";
import type { ClientAnswers, Outcome } from "../upstream/open-call.ts";
import { type Health, type StartedCall, Upstream } from "../upstream/upstream.ts";
import { type LoopbackHttp, loopbackHttp } from "./loopback-http.ts";

export interface Heard {
  readonly changed: { readonly what: string; readonly uri: string | undefined }[];
  readonly health: { readonly state: Health; readonly error: string | null }[];
  readonly logs: string[];
}

export interface CallOptions {
  readonly method?: string;
  readonly params?: unknown;
  readonly client?: Partial<ClientAnswers>;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** Called with each request of the server. */
  readonly onRequest?: (text: string, call: StartedCall) => void;
}

export interface TestCall {
  readonly call: StartedCall;
  readonly outcome: Promise<Outcome>;
  readonly notifications: string[];
  readonly asked: string[];
}

export interface OneServer {
  readonly upstream: Upstream;
  readonly http: LoopbackHttp;
  readonly heard: Heard;
  call(options?: CallOptions): TestCall;
}

export function declared(url: string, more: Partial<ProxyServer> = {}): ProxyServer {
  return { name: "one", url, transport: "auto", protocol: "auto", timeout_ms: 5_000, ...more };
}

export function oneServer(url: string, more: Partial<ProxyServer> & { now?: () => number } = {}): OneServer {
  const { now = () => performance.now(), ...declaration } = more;
  const http = loopbackHttp();
  const heard: Heard = { changed: [], health: [], logs: [] };
  const upstream = new Upstream({
    server: declared(url, declaration),
    http,
    now,
    random: () => 0.5,
    events: {
      changed: (_, what, uri) => heard.changed.push({ what, uri }),
      health: (_, state, error) => heard.health.push({ state, error }),
      log: (_, paramsText) => heard.logs.push(paramsText),
    },
  });
  onTestFinished(async () => {
    await upstream.close();
    http.close();
  });
  return { upstream, http, heard, call: (options = {}) => startCall(upstream, options) };
}

function startCall(upstream: Upstream, options: CallOptions): TestCall {
  const { method = "tools/call", params = { name: "echo", arguments: {} }, timeoutMs = 5_000 } = options;
  const notifications: string[] = [];
  const asked: string[] = [];
  const { signal = new AbortController().signal } = options;
  // Tests cancel many at once.
  setMaxListeners(0, signal);
  const call = upstream.start(
    {
      ...{ method, timeoutMs },
      paramsText: typeof params === "string" ? params : JSON.stringify(params),
      client: { sampling: false, elicitation: false, roots: false, ...options.client },
    },
    {
      notification: async (text) => void notifications.push(text),
      request: async (text) => {
        asked.push(text);
        options.onRequest?.(text, call);
      },
    },
    signal,
  );
  call.outcome.catch(() => undefined);
  return { call, outcome: call.outcome, notifications, asked };
}
