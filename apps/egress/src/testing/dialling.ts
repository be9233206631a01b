// A dialler with real connections, admitted by a script.
import type { SecureContext } from "node:tls";
import { Failure } from "@capsem/base";
import { type HttpBody, type HttpCall, judgeUrl } from "@capsem/net";
import { onTestFinished } from "vitest";
import { trustedContext } from "../certificates.ts";
import { type AdmissionRequest, Dialler } from "../dialler.ts";
import { HttpPool } from "../http-pool.ts";
import type { Admission, LeaseEnd } from "../lease.ts";

export interface DiallingOptions {
  /** What is admitted beside the address of this machine; throws to refuse. */
  readonly admit?: (
    request: AdmissionRequest,
    signal?: AbortSignal,
  ) => Partial<Admission> | Promise<Partial<Admission>>;
  readonly secureContext?: SecureContext;
  readonly nowMs?: () => number;
}

const usual = trustedContext(null);

const steady = () => performance.now();

export function dialling({ admit, secureContext = usual, nowMs = steady }: DiallingOptions = {}) {
  const asked: AdmissionRequest[] = [];
  const ends: LeaseEnd[] = [];
  const dialler = new Dialler({
    admit: async (request, signal) => {
      asked.push(request);
      const more = (await admit?.(request, signal)) ?? {};
      return {
        ...{ lease: `lease-${asked.length}`, lease_ms: request.server === null ? 0 : 60_000 },
        ...{ addresses: ["127.0.0.1"], headers: [], secrets: [], ...more },
      };
    },
    done: (end) => ends.push(end),
    openPool: (options) => HttpPool.open({ ...options, secureContext }),
    nowMs,
  });
  onTestFinished(() => dialler.end());
  return {
    dialler,
    asked,
    ends,
    fetch: (url: string, more: Partial<HttpCall> = {}, signal: AbortSignal = new AbortController().signal) =>
      dialler.serve(
        {
          ...{
            server: "docs",
            url,
            method: "GET",
            headers: [],
            body: null,
            timeout_ms: 5_000,
            trace_id: null,
          },
          ...more,
        },
        signal,
      ),
  };
}

/** As the service does it, without names. */
export function byPolicy(grants: readonly string[]) {
  return ({ url }: AdmissionRequest) => {
    const judgement = judgeUrl(url, grants);
    if (judgement.kind === "refused") throw new Failure("policy", `Cannot fetch: ${judgement.reason}`);
    return { addresses: [judgement.target.host] };
  };
}

export async function readAll(body: HttpBody): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const chunk of body) parts.push(chunk);
  return Buffer.concat(parts).toString("latin1");
}

export async function failureOf(work: Promise<unknown>): Promise<Failure> {
  const thrown = await work.then(
    () => new Error("it succeeded"),
    (cause: unknown) => cause,
  );
  if (thrown instanceof Failure) return thrown;
  throw thrown;
}

export async function until(isSo: () => boolean, what: string): Promise<void> {
  for (let i = 0; i < 500; i += 1) {
    if (isSo()) return;
    await new Promise((done) => setTimeout(done, 10));
  }
  throw new Error(`never: ${what}`);
}
