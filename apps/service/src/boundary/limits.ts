import { POLICY_LIMITS } from "@capsem/policy";

/** Bounds of what is judged and recorded, with their reasons. */
const KIB = 1024;

export const CLIENT_LIMITS = {
  /** A name and a version, and in brackets those of whom it speaks for; each row of the ledger repeats it. */
  nameCharactersMax: 128,
  turnCharactersMax: 128,
  traceCharactersMax: 256,
} as const;

export const BOUNDARY_LIMITS = {
  /** Of a file or an output: as much as a rule can see, and one byte more, so that it sees that it was cut. */
  contentBytesMax: POLICY_LIMITS.bodyBytesMax + 1,
  /** Of stdout and stderr, in a job's row: what a person wants to see beside its exit code. */
  previewCharactersMax: 4 * KIB,
  /** Of an event beside its decision: larger ones are bodies, so that who reads decisions does not read all of those. */
  eventInRowCharactersMax: 16 * KIB,
  /** The longest secret that can be registered: so much of a cut text's end may be the half of one. */
  secretCharactersMax: 16 * KIB,
  /** Of a finished job's kept output, read for its row: the beginning of both streams, however they alternate. */
  keptOutputBytesMax: 512 * KIB,
  /** That reading is for the evidence alone, and its owner may be in trouble. */
  keptOutputTimeoutMs: 10_000,
  /** Of why a change of settings failed, in its row: faults of a rule have a place and a few words each. */
  errorCharactersMax: 1_024,
  /** Jobs of one VM whose output is withheld; an owner remembers 256 jobs that have ended. */
  withheldJobsMax: 4_096,
} as const;
