import { Failure, messageOf } from "@capsem/base";

/**
 * Kinds that are not the name of an errno:
 * - `addon_missing`: the compiled addon is absent or does not load,
 * - `descriptors_truncated`: a peer sent more descriptors than we take; all of them are closed,
 * - `payload_truncated`: a peer's message was longer than asked for; its descriptors are closed.
 *
 * Every other failure has the errno of the kernel as its kind, such as `EPERM`.
 */
export type NativeFailureKind =
  | "addon_missing"
  | "descriptors_truncated"
  | "payload_truncated"
  | `E${Uppercase<string>}`;

const STATES: Readonly<Record<string, string>> = {
  descriptors_truncated: "the peer sent too many descriptors",
  payload_truncated: "the peer's message is too long",
  EAGAIN: "the peer did not move in time",
  ECANCELED: "it was cancelled",
};

/** Runs one call of the addon; what the kernel refuses becomes a Failure, anything else passes unchanged. */
export function guarded<T>(verb: string, call: () => T): T {
  try {
    return call();
  } catch (thrown) {
    throw ours(verb, thrown);
  }
}

/** The same for a call that settles later. */
export async function guardedLater<T>(verb: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (thrown) {
    throw ours(verb, thrown);
  }
}

function ours(verb: string, thrown: unknown): unknown {
  const kind = kindOf(thrown);
  if (kind === undefined) return thrown;
  const state = STATES[kind] ?? messageOf(thrown);
  return new Failure<NativeFailureKind>(kind, `Cannot ${verb}: ${state}`, {
    cause: thrown,
    retryable: kind === "EAGAIN",
  });
}

function kindOf(thrown: unknown): NativeFailureKind | undefined {
  if (!(thrown instanceof Error) || !("code" in thrown) || typeof thrown.code !== "string") return undefined;
  const { code } = thrown;
  if (code === "descriptors_truncated" || code === "payload_truncated") return code;
  return /^E[A-Z0-9]+$/.test(code) ? (code as `E${Uppercase<string>}`) : undefined;
}
