/** Bounds of the proxy, with their reasons. Times in milliseconds. */
export const PROXY_LIMITS = {
  /** It writes no file, but for its code cache when it is built. */
  fileBytesMax: 16 * 1024 * 1024,
  readyTimeoutMs: 10_000,
  /** A first message that comes before the first rules waits so long for them. */
  rulesTimeoutMs: 10_000,

  /**
   * As long as a timer can be. A proxy that was started for the host's calls serves them whether the guest ever opens its
   * port or not; a relay that has opened it counts from then, and rings for another proxy when nobody answers (lane.c).
   */
  laneWaitMs: 2_147_483_647,

  /** To a neighbour that was asked for: it starts, seals itself and is granted. */
  needTimeoutMs: 10_000,
  /** What a neighbour may take to know its servers. */
  serverSetTimeoutMs: 10_000,
  /** To the service, of what a moment takes there. */
  reportTimeoutMs: 10_000,
  factsTimeoutMs: 30_000,
  /** A burst is longer than the ledger takes at once: an act waits so long for its room, and is refused then. */
  roomWaitMs: 5_000,
  /** A payload that is larger than this is begun with so much room: the window never has all of it. */
  roomBytesMax: 4 * 1024 * 1024,
  /** Ends wait so long for company: an intent that is written takes them along. */
  endsWaitMs: 1,
  /** Of the 256 streams of the service's channel; what comes meanwhile goes together in the next one. */
  appendsOpenMax: 16,
  /** The same, of people who are asked; whoever asks beyond it is refused. */
  asksOpenMax: 160,
  /** Of one append: a message of ours is 16 MiB at most. */
  appendBytesMax: 8 * 1024 * 1024,

  /** One look at a server, all its pages. */
  catalogTimeoutMs: 60_000,
  /** A list waits so long for servers that nobody has looked at yet, and goes without them then. */
  listWaitMs: 3_000,
  /** A failed look is not repeated by each list. */
  catalogRetryMs: 2_000,
  /** A list older than this is refreshed behind the one that is given: not every server tells of changes. */
  catalogAgeMsMax: 300_000,
  /** Who lists or calls waits so long for definitions of which others have seen newer ones: less than a list waits at all. */
  catalogRenewWaitMs: 2_000,
  /** A server that says one thing to this proxy and another to the next is not asked by each call. */
  catalogRenewMsMin: 1_000,
  /** Looks that others overtake each time are given up. */
  catalogLooksMax: 3,
  /** Changes of many tools in one breath are told once. */
  changedWaitMs: 100,
  /** Lists of one catalogue as different clients see them. */
  viewsMax: 256,
  /** Of all pages together a list of 66 kB is large; clients that read no second page see all of it. */
  pageItemsMax: 1_000,
  pageBytesMax: 4 * 1024 * 1024,
  definitionBytesMax: 1024 * 1024,

  /** Of a call in all, and of any other request that a server answers (wire spec). */
  callTimeoutMs: 300_000,
  otherTimeoutMs: 60_000,
  /** Per processor, of calls that run at once for a scope (wire spec). */
  callsPerCore: 4,
  callsWaitingMax: 1_024,
  /** Of one client, so that it does not fill the queue for the others. */
  callsWaitingOfClientMax: 256,
  /** Requests of one client that are not answered yet, listens and asks included. */
  requestsOfClientMax: 512,
  subscriptionsOfClientMax: 256,

  /** A request of a server in the course of a call waits so long for the client's answer, within the call's time. */
  clientAnswerTimeoutMs: 300_000,
  /** Messages of progress of a client about one such request; a server learns nothing more from others. */
  progressOfAskMax: 1_000,
  /** One of these: two numbers and a sentence. */
  progressCharsMax: 16_384,
  /** A server that hears of other roots asks for them within this, or not at all. */
  rootsChangedMs: 10_000,
  /** A server that asks again and again is cut. */
  inputRoundsMax: 16,
  /** Calls that a client has to come back to. */
  heldCallsMax: 256,
  inputRequestsMax: 16,

  /** From this size on arguments are in UTF-8 once, for all who take them so: a text as long costs as much as it to send. */
  encodedCharsMin: 16_384,
  /** What an event holds of a payload at most, text and structure together: more of it costs no credit. */
  eventCharsMax: 262_144,
  /** What a row shows of a payload. */
  previewCharsMax: 4_096,
  /** A whole payload beside its event (worker contract). */
  bodyBytesMax: 10 * 1024 * 1024,
  /** Both payloads of a call: with the rest of their fact they fit one message of 16 MiB. */
  bodiesBytesMax: 14 * 1024 * 1024,
  /** Of what a client says of itself, or a server of an error. */
  nameCharsMax: 256,
  errorCharsMax: 1_024,
  /** Room of a fact beside its payload, as credit counts it. */
  factBytes: 1_024,
  /** Sessions whose taint is kept apart; the rest share theirs. */
  taintsMax: 4_096,
  /** Resource links that came in results, by their original URI. */
  linksMax: 4_096,
  /** A text is at most this in a rule (POLICY_LIMITS.textBytesMax, in characters that are surely within). */
  ruleTextCharsMax: 5_461,
} as const;
