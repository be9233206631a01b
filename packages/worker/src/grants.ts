import { WORKER_GRANT_BYTES_MAX, type WorkerGrant, workerGrant } from "@capsem/api";
import { messageOf, textOf } from "@capsem/base";
import { WORKER_LIMITS } from "./limits.ts";
import type { Log } from "./log.ts";

/** Of the addon, what taking grants needs. */
export interface GrantSocket {
  receiveDescriptorsLater(
    fd: number,
    payloadBytesMax: number,
    options: { readonly timeoutMs: number; readonly signal?: AbortSignal },
  ): Promise<{ readonly payload: Uint8Array; readonly fds: readonly number[] }>;
  closeDescriptor(fd: number): void;
}

export interface GrantsOptions {
  /** SEQPACKET. Stays open. */
  readonly fd: number;
  readonly native: GrantSocket;
  /** Whether it is one for this process; all are, where it is left out. */
  readonly accepts?: (grant: WorkerGrant) => boolean;
  /** Owns the descriptor from now on. */
  readonly onGrant: (grant: WorkerGrant, fd: number) => void;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** Ends of one wait after which the next one begins: its time is over, or the message was too long to be a grant. */
const PASSING = new Set(["EAGAIN", "payload_truncated"]);

/** Takes grants until the service has closed its end, or the signal. Never rejects. */
export async function readGrants(options: GrantsOptions): Promise<void> {
  const { fd, native, accepts = () => true, onGrant, log, signal } = options;
  while (!signal.aborted) {
    let received: Awaited<ReturnType<GrantSocket["receiveDescriptorsLater"]>>;
    try {
      const waiting = { timeoutMs: WORKER_LIMITS.grantWaitMs, signal };
      received = await native.receiveDescriptorsLater(fd, WORKER_GRANT_BYTES_MAX, waiting);
    } catch (thrown) {
      const kind = kindOf(thrown);
      if (kind === "payload_truncated") log("error", "a grant is none", { cause: messageOf(thrown) });
      if (PASSING.has(kind)) continue;
      if (!signal.aborted) log("error", "grants can no longer be read", { cause: messageOf(thrown) });
      return;
    }
    if (received.payload.length === 0 && received.fds.length === 0) return;
    const [granted, ...others] = received.fds;
    const grant = parseGrant(received.payload);
    if (grant === null || granted === undefined || others.length > 0 || !accepts(grant)) {
      for (const each of received.fds) native.closeDescriptor(each);
      log("error", "a grant is none", { descriptors: received.fds.length });
      continue;
    }
    onGrant(grant, granted);
  }
}

function parseGrant(payload: Uint8Array): WorkerGrant | null {
  let value: unknown;
  try {
    value = JSON.parse(textOf(payload));
  } catch {
    return null;
  }
  const parsed = workerGrant.safeParse(value);
  return parsed.success ? parsed.data : null;
}

function kindOf(thrown: unknown): string {
  return thrown instanceof Error && "kind" in thrown ? String(thrown.kind) : "";
}
