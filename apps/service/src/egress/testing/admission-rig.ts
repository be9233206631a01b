// The admission behind its real boundary and real credentials, with rules, rows, asks and names that a test sets.
import { randomBytes, randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ContractParams, ContractResult, EGRESS_SERVICE_METHODS } from "@capsem/api";
import { Failure } from "@capsem/base";
import type { RpcContext } from "@capsem/rpc";
import { onTestFinished } from "vitest";
import { createBoundary } from "../../boundary/boundary.ts";
import { FakeAsks, FakeLedger, FakePolicy } from "../../boundary/testing/fake-parts.ts";
import { CredentialBook } from "../../credential/credential-book.ts";
import { SecretRedactor } from "../../credential/redactor.ts";
import { actContextOf } from "../../testing/act-context.ts";
import { EgressAdmission } from "../egress-admission.ts";

export const VM = "vm_aaaaaaaaaaaaaaaa";

type Asked = ContractParams<typeof EGRESS_SERVICE_METHODS, "egress.admit">;
type Admitted = ContractResult<typeof EGRESS_SERVICE_METHODS, "egress.admit">;
type Done = ContractParams<typeof EGRESS_SERVICE_METHODS, "egress.done">;

export interface AdmissionRigOptions {
  readonly builtinGrants?: readonly string[];
  /** How an egress fails that is told to give something up. */
  readonly revoke?: string;
}

export async function admissionRig({ builtinGrants = [], revoke }: AdmissionRigOptions = {}) {
  const folder = mkdtempSync(join(tmpdir(), "capsem-admission-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const [policy, ledger, asks, redactor] = [
    new FakePolicy(),
    new FakeLedger(),
    new FakeAsks(),
    new SecretRedactor(),
  ];
  const log: unknown[] = [];
  const names = new Map<string, readonly string[] | (() => readonly string[] | Promise<readonly string[]>)>();
  const lookups: string[] = [];
  const revoked: unknown[] = [];
  const clock = { nowMs: 1_700_000_000_000 };
  const common = {
    ...{
      policy,
      ledger,
      redactor,
      asks,
      digestKey: Buffer.alloc(32, 7),
      random: (bytes: number) => randomBytes(bytes),
    },
    ...{ nowMs: () => clock.nowMs, monotonicMs: () => clock.nowMs },
    log: (level: string, message: string, fields = {}) => void log.push({ level, message, ...fields }),
  };
  const boundary = createBoundary(common);
  const open = { policyDigest: () => "digest", nowMs: common.nowMs, random: common.random };
  const credentials = await CredentialBook.open({ folder, redactor, ...open, boundary });
  const admission = new EgressAdmission({
    ...{ ...common, boundary, credentials },
    snapshot: () => policy.snapshot(),
    vm: (id) => (id === VM ? { id, name: "box", image: null } : null),
    host: { kind: "user", name: "uid 1000" },
    async lookup(host) {
      lookups.push(host);
      const found = names.get(host);
      if (found === undefined)
        throw Object.assign(new Error(`getaddrinfo ENOTFOUND ${host}`), { code: "ENOTFOUND" });
      return typeof found === "function" ? found() : found;
    },
    builtinGrants: () => builtinGrants,
  });
  const handlers = admission.handlers({
    async call(method, params) {
      revoked.push([method, params]);
      if (revoke !== undefined) throw new Failure(revoke, "Cannot call: a scripted failure");
    },
  });
  const call = async (method: string, params: unknown, signal = new AbortController().signal) =>
    handlers[method]?.(params, { signal, timeLeftMs: undefined, trace: undefined } as RpcContext);
  return {
    ...{ policy, ledger, asks, redactor, credentials, admission, names, lookups, revoked, log, clock },
    context: actContextOf(),
    admit: (more: Partial<Asked> = {}, signal?: AbortSignal) =>
      call(
        "egress.admit",
        {
          ...{
            client: "aggregator:host",
            lease: `lease_${randomUUID()}`,
            server: "docs",
            url: "https://docs.example.com/mcp",
            method: "POST",
          },
          ...{ headers: [], trace_id: "ab".repeat(16), ...more },
        },
        signal,
      ) as Promise<Admitted>,
    done: (more: Partial<Done> & Pick<Done, "lease">) =>
      call("egress.done", {
        status: null,
        bytes_sent: 1,
        bytes_received: 2,
        duration_ms: 3,
        error: null,
        ...more,
      }),
    rows: (scope?: string) => ledger.of("net_events", scope),
  };
}

/** Declares servers, and says what else the settings have. */
export function settings(servers: Readonly<Record<string, string>>, rules = ""): string {
  const tables = Object.entries(servers).map(([name, words]) => `[mcp.servers.${name}]\n${words}\n`);
  return `${rules}\n${tables.join("\n")}`;
}

export async function failureOf(work: Promise<unknown>): Promise<Failure> {
  const thrown = await work.then(
    () => new Error("it succeeded"),
    (cause: unknown) => cause,
  );
  if (thrown instanceof Failure) return thrown;
  throw thrown;
}
