import { assert } from "@capsem/base";
import { PASS_TIMEOUT_MS_MAX, PASSED_DESCRIPTORS_MAX, PASSED_PAYLOAD_BYTES_MAX } from "./limits.ts";

/** What JavaScript checks before C++ sees it. A refusal is a bug of the caller. */

const SEALS_ALL = 31;

export function checkDescriptor(fd: number): void {
  assert(Number.isInteger(fd) && fd >= 0 && fd <= 0x7fffffff, `bad descriptor ${fd}`);
}

export function checkSize(sizeBytes: number, sizeBytesMax: number): void {
  assert(Number.isInteger(sizeBytes) && sizeBytes >= 0 && sizeBytes <= sizeBytesMax, `bad size ${sizeBytes}`);
}

export function checkSeals(seals: number): void {
  assert(Number.isInteger(seals) && seals >= 0 && (seals & ~SEALS_ALL) === 0, `bad seals ${seals}`);
}

export function checkTimeout(timeoutMs: number): void {
  assert(
    Number.isInteger(timeoutMs) && timeoutMs >= 0 && timeoutMs <= PASS_TIMEOUT_MS_MAX,
    `bad timeout ${timeoutMs}`,
  );
}

export function checkSending(payload: Uint8Array, fds: readonly number[]): void {
  // Descriptors ride on bytes: with none, the kernel would drop them without a word.
  assert(payload instanceof Uint8Array && payload.length > 0, "descriptors need a payload");
  assert(payload.length <= PASSED_PAYLOAD_BYTES_MAX, "the payload is too long");
  assert(fds.length <= PASSED_DESCRIPTORS_MAX, "too many descriptors");
  for (const passed of fds) checkDescriptor(passed);
}
