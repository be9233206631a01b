const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
const BODY = "[a-z2-7]{16}";

export const VM_ID_PATTERN: RegExp = new RegExp(`^vm_${BODY}$`);
export const JOB_ID_PATTERN: RegExp = new RegExp(`^job_${BODY}$`);
export const NAME_PATTERN: RegExp = /^[a-z][a-z0-9-]{0,62}$/;

/** `prefix_` + 16 base32 characters (80 random bits). `random` returns that many unpredictable bytes. */
export function newId(prefix: string, random: (bytes: number) => Uint8Array): string {
  let body = "";
  for (const byte of random(16)) body += ALPHABET[byte & 31];
  return `${prefix}_${body}`;
}
