import { blake3 } from "@noble/hashes/blake3.js";

export const REFERENCE_KEY_BYTES = 32;

export interface Referred {
  readonly name: string;
  /** In their one spelling and order. */
  readonly hosts: readonly string[];
  readonly secret: string;
}

const CONTEXT = Buffer.from("capsem 2026-09 credential reference v1");

/**
 * The reference that stands for a secret: keyed BLAKE3 over name, hosts and secret. The key is this installation's own
 * and random, so that whoever sees a reference cannot try guesses against it; name and hosts keep the same secret of two
 * providers apart.
 */
export function referenceOf(installationKey: Uint8Array, { name, hosts, secret }: Referred): string {
  const key = blake3(installationKey, { context: CONTEXT });
  // A JSON list reads in one way only, whatever its texts hold.
  const message = Buffer.from(JSON.stringify([name, hosts, secret]));
  return `credential:blake3:${Buffer.from(blake3(message, { key })).toString("hex")}`;
}
