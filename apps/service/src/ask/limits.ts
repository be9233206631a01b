/** Bounds of asks, with their reasons. */
export const ASK_LIMITS = {
  /** More than a person reads; a VM whose work asks so much needs a rule. */
  waitingMax: 64,
  waitingOfVmMax: 16,
  /** About no VM, or one that is only being made: whoever makes many VMs asks for all of them here. */
  waitingOfNoVmMax: 16,
  /** One client with one token: half, so that no agent keeps all others from asking. */
  waitingOfRequesterMax: 32,
  /** Nothing waits for them, so that they cost whoever makes them nothing: calls that are held keep half of the room. */
  waitingLaterMax: 32,
  /** Calls that wait for one ask: the same act, asked for many times. */
  callsMax: 16,
  /** What a held call keeps for itself: to answer, and for its client to read the answer. */
  reserveMs: 5_000,
  /** The largest value that `asks.timeout_secs` takes: a file that says more was not written by us. */
  waitMsMax: 300_000,
  /** An approval that no call waited for serves one that comes so soon. */
  retryMs: 10 * 60_000,
  /** Of those that are over, for who looks back; the ledger has them all. */
  keptMs: 24 * 3600_000,
  keptMax: 1_000,
  /** Approvals for a VM, while it is there; above it the oldest is forgotten, and is asked again. */
  standingMax: 1_000,
  /** Whoever resolves what another is just resolving, which may write a rule that a person is asked for. */
  claimMs: 330_000,
  titleCharactersMax: 512,
  reasonCharactersMax: 512,
  /** An id of `asks/` and its ending; what else lies there is none of ours. */
  fileBytesMax: 4 * 1024 ** 2,
} as const;
