import { assert } from "@capsem/base";
import { getU32, putU32 } from "./frame.ts";

/**
 * What `agent_us` of a `job_done` is encoded with where it is only known when the encoding is done: it takes the four
 * bytes of any time up to 71 minutes.
 */
export const UNSTAMPED_US = 0xffff_ffff;

/** MessagePack's byte before an integer of 32 bits. */
const UINT32 = 0xce;

/** Writes the time into an encoded `job_done`, whose last field it is. Returns what it says now. */
export function writeAgentUs(encoded: Uint8Array, us: number): number {
  const at = encoded.length - 4;
  const isUnstamped = at > 0 && encoded[at - 1] === UINT32 && getU32(encoded, at) === UNSTAMPED_US;
  assert(isUnstamped, "a job_done is stamped once, and its time is its last field");
  const stamp = Math.min(UNSTAMPED_US - 1, Math.max(0, Math.round(us)));
  putU32(encoded, at, stamp);
  return stamp;
}
