/** Every bound of the service, with its reason where the name does not give it. */
const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

export const HOME_LIMITS = {
  /** vm.json and the like: an environment is the largest thing in them. */
  jsonFileBytesMax: 4 * MIB,
  /** A lock file that is taken away under us, again and again, is somebody's game. */
  lockTries: 8,
} as const;

export const POLICY_FILE_LIMITS = {
  /** A write is given up after so many others came before it: somebody's program writes the file all the time. */
  writeTries: 8,
  /** Faults of a broken file that the log names; the rest is in the settings' info. */
  faultsLogged: 10,
  /** Keys of one edit by hand that get a row each; a file of 2,000 rules may be exchanged for another. */
  notedKeysMax: 256,
  /** One line about an event, in a replay. */
  titleCharactersMax: 200,
} as const;

export const POLICY_TIMES = {
  /** Whoever decides by older rules for longer is replaced. */
  holderTimeoutMs: 1_000,
  /** Less than that: the files that show people what is in force are behind at worst. */
  activeWriteMs: 500,
  /** A process is killed and started in less. */
  replaceTimeoutMs: 5_000,
  /** An editor writes, renames and changes modes within this. */
  watchQuietMs: 150,
} as const;

export const CONFINEMENT_LIMITS = {
  /** In the one line of a status. */
  vmsNamedMax: 3,
  wordsCharactersMax: 300,
} as const;

export const HTTP_LIMITS = {
  jsonBodyBytesMax: 10 * MIB,
  /** A file larger than a VM's disk quota can never be kept. */
  fileBodyBytesMax: 10 * GIB,
  treeBodyBytesMax: 10 * GIB,
  headerBytesMax: 16 * KIB,
  headersTimeoutMs: 10_000,
  /** An idle connection is closed, so that the limit below is not used up by clients that sleep. */
  keepAliveTimeoutMs: 60_000,
  connectionsCheckMs: 2_000,
  /** An upload that sends nothing for so long is given up. */
  uploadIdleMs: 120_000,
  connectionsMax: 512,
  /** What a refused upload may still send before its connection is cut: lets the client read the answer. */
  refusedBodyBytesMax: 1 * MIB,
} as const;

export const STREAM_LIMITS = {
  /** One WebSocket frame of capsem.stream.v1, kind byte included. */
  frameBytesMax: 262_144,
  /** How long a fresh socket may take to say start or attach. */
  startTimeoutMs: 30_000,
  /** Client frames that wait while an earlier one is being handled; more pauses the socket. */
  framesWaitingMax: 16,
} as const;

export const EVENT_LIMITS = {
  /** A dashboard or two, some tools; each costs a queue. */
  subscribersMax: 32,
  queuedMax: 256,
  /** A failed VM's event carries its last lines: few of them may be large. */
  queuedCharsMax: 1 * MIB,
  /** Clients send nothing; the library must still read one frame to see that. */
  clientFrameBytesMax: 1 * KIB,
} as const;

export const STATS_LIMITS = {
  /** Of each route, for its percentiles. */
  durationsKept: 256,
} as const;

export const TROUBLE_LIMITS = {
  /** Groups of findings; the one that is quiet for longest goes. */
  groupsMax: 100,
  /** Of one group: when, where and what. */
  sightingsMax: 50,
  titleCharactersMax: 200,
  detailCharactersMax: 500,
  panicFramesMax: 16,
  panicMessageCharactersMax: 1_000,
  panicFileBytesMax: 64 * KIB,
  /** Last lines of an owner's own words, where an uncaught error stands. */
  ownerLinesKept: 64,
  listedDefault: 20,
  /** Panics that are read out of the gateway's log. */
  gatewayPanicsMax: 50,
  gatewayPanicBytesMax: 256 * KIB,
  /** A number and a line's end. */
  pidFileBytesMax: 64,
} as const;

export const EXEC_LIMITS = {
  /** Kept of each of stdout and stderr in an exec answer. */
  outputBytesMax: 1 * MIB,
  /** After a job's end its output must follow at once; a background child may hold the pipe open. */
  outputGraceMs: 2_000,
  /** What we allow beyond the job's own limit, for the guest's kill to come back. */
  timeoutGraceMs: 10_000,
} as const;

export const TIMES = {
  startTimeoutMs: 30_000,
  coldStartTimeoutMs: 60_000,
  /** A boot, the warming, and the copy of the memory to disk. */
  goldenTimeoutMs: 120_000,
  /** After a failed build the next create boots cold at once instead of failing again. */
  goldenRetryMs: 60_000,
  stopTimeoutMs: 10_000,
  /** From SIGKILL to the process being gone. */
  killTimeoutMs: 4_000,
  /** Calls that wait for no work in the guest. */
  callTimeoutMs: 10_000,
  /** After an owner's channel broke, until its end is known. */
  lostTimeoutMs: 5_000,
  claimTimeoutMs: 15_000,
  /** A prepared VM answers its claim in a fraction of this; a frozen one must not hold up the create. */
  slotClaimTimeoutMs: 3_000,
  pingIntervalMs: 1_000,
  pingTimeoutMs: 1_000,
  pingsMissedMax: 3,
  /** An owner whose channel ended has this long to end by itself. */
  ownerExitTimeoutMs: 2_000,
  /** After an owner's exit, its last words may still be in the socket. */
  lastWordsTimeoutMs: 250,
  sweepIntervalMs: 5_000,
  failedKeptMs: 15 * 60_000,
  removeRetryMs: 200,
} as const;

export const VM_LIMITS = {
  /** An owner holds three lanes, its logs, and an output file for each job that it still remembers. */
  ownerOpenFilesMax: 1_024,
  /** What the host side of a VM uses beside the guest's memory. */
  overheadMib: 160,
  /** Share of the available memory that VMs may be promised. */
  memoryShare: 0.75,
  diskFloorBytes: 2 * GIB,
  /** Its disk and what its owner keeps beside it. */
  diskAllocatedBytesMax: 10 * GIB,
  /** An owner keeps a file of each of 256 finished jobs, and of those that run. */
  jobEntriesMax: 4_096,
  diskCapacityBytes: 64 * GIB,
  memoryGibMin: 0.25,
  /** First user id of a VM where the service runs as root. */
  uidBase: 200_000,
  uidSlots: 256,
  /** A home's VMs have one range of that many ids. */
  uidRanges: 8_192,
  removeTries: 3,
  /** Of a vm.json that cannot be parsed: name and sizes stand at its beginning. */
  recordBytesRead: 64 * KIB,
} as const;

export const POOL_LIMITS = {
  availableMemoryBytesMin: 4 * GIB,
  refillAfterClaimMs: 500,
  drainAfterIdleMs: 10 * 60_000,
  retryMsMin: 1_000,
  retryMsMax: 60_000,
  sizeMax: 16,
} as const;

export const GOLDEN_LIMITS = {
  countMax: 4,
  bytesMax: 2 * GIB,
} as const;

export const LOG_LIMITS = {
  fileBytesMax: 10 * MIB,
  filesKept: 3,
  /** Logs and panics that nobody wrote for longer are removed. */
  keptMs: 7 * 24 * 3600_000,
  /** From one round of removal to the next, and how much of a round one pass of the sweep does. */
  roundIntervalMs: 3600_000,
  foldersAPass: 16,
  filesAFolder: 128,
  /** One line; the rest of a longer one is dropped. */
  lineBytesMax: 64 * KIB,
  /** The service's own is written to so often at most, or sooner when there is much; who reads it may miss as much. */
  gatherMs: 10,
  gatherBytesMax: 64 * KIB,
  /** A line of a guest's that is as long may have been cut by its owner, which keeps 8 KiB of one. */
  ownerLineBytesMin: 8 * KIB - 4,
  /** What one VM's processes may say, and how much at once: a boot says less than a tenth of it. */
  bytesPerSecondMax: 512 * KIB,
  burstBytesMax: 1 * MIB,
  /** To parse and sort a line costs what so many of its bytes do. */
  lineCostBytes: 256,
  tailLines: 200,
  /** Lines of the tail that an answer carries. */
  tailLinesShown: 40,
  /** Of one line's further fields, in the tail. */
  tailFieldsCharactersMax: 1_000,
  windowBytesDefault: 12 * KIB,
  windowBytesMax: 1 * MIB,
  /** What one request may make us read of logs, whose size others decide; older lines are as good as gone. */
  readBytesMax: 16 * MIB,
  panicsKept: 50,
  /** Lines waiting for the disk; more are dropped and counted, because a guest decides how much it prints. */
  pendingBytesMax: 4 * MIB,
} as const;

export const FILE_LIMITS = {
  listEntriesDefault: 256,
  /** Beyond the owner's own bound on the silence of a file operation. */
  answerTimeoutMs: 65_000,
} as const;

export const IMAGE_LIMITS = {
  /** A build from the network on a busy machine; found in the cache it takes a moment. */
  timeoutMs: 20 * 60_000,
  outputCharactersMax: 65_536,
} as const;

export const PROCESS_LIMITS = {
  /** VMs stop in 10 s each, all at once; then what hangs is left to the kernel. */
  closeTimeoutMs: 20_000,
} as const;
