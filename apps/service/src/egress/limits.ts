/** Bounds of what is admitted to leave, with their reasons. Times in milliseconds. */
export const EGRESS_ADMISSION_LIMITS = {
  /** What an answer of the DNS may be old: a name that moves is followed within a minute. */
  leaseMs: 60_000,
  /** Resolvers give up after five seconds and ask another one once. */
  lookupTimeoutMs: 11_000,
  /** Each takes one of four threads that files of the service need too. */
  lookupsMax: 2,
  lookupsWaitingMax: 256,
  /** More addresses than these are tried by nobody. */
  addressesMax: 16,
  /** Leases and requests that have not ended yet: 256 of each of a hundred clients. */
  openMax: 32_768,
  /** A request that rules judged and of which nobody says the end: its caller left while it was being answered. */
  requestMsMax: 900_000,
  /** What a person reads of a URL. */
  titleCharactersMax: 300,
} as const;
