import { WIRE_LIMITS } from "@capsem/wire";

/** Every bound of the guest agent, with its reason. */
export const GUEST_LIMITS = {
  /** Request ids remembered with their answers, so that none is executed twice. */
  journalEntriesMax: 4_096,
  /** Their answers together; a directory page is up to 60 KiB, most answers are 40 bytes. */
  journalBytesMax: 4_194_304,

  jobsMax: WIRE_LIMITS.jobsMax,
  /** Prepared children that wait for a command or a file operation. More only cost memory. */
  zygotesWarm: 2,
  /** A helper that was just started needs so long to reach its wait, under emulation. */
  zygoteSettleMs: 200,
  /** So often it is looked at again, before a save goes on without it: a save that waits for ever is worse. */
  zygoteSettleTries: 25,
  /** Starting one steals the only CPU from what has just been asked for (measured). */
  zygoteRefillDelayMs: 300,
  /** From the start line to the command's execve. */
  jobStartTimeoutMs: 30_000,
  /** A cgroup that background children still live in is looked at again after this. */
  cgroupSweepMs: 5_000,

  /** Requests under way at once, jobs apart; more are refused with `quota`. */
  operationsMax: 64,
  /** Between a control message and its stream on port 5009, in either order. */
  rendezvousTimeoutMs: 10_000,
  /** Streams that came before their control message: those of as many jobs as may run and operations beside them. */
  rendezvousWaitingMax: WIRE_LIMITS.jobsMax + 64,
  /** One report of the helper about a file. Removing a large tree under emulation is the slowest. */
  fileReportTimeoutMs: 120_000,
  /** A listing by the workload's own find, which may be anything. */
  captureTimeoutMs: 30_000,
  /** A tool that has all its input, or whose output is read, still writes a large tree to the disk. */
  toolEndTimeoutMs: 600_000,
  /** What tar or the helper says about an error. */
  fileStderrBytesMax: 4_096,
  /** A directory is read as a whole to be sorted; about 250 bytes an entry of the agent's memory. */
  listEntriesMax: 65_536,
  findBytesMax: 16_777_216,
  /** Later pages are cut from what the first one saw, if they come in time. */
  listKeptMs: 10_000,
  /** A listing's answer must fit one control message with its header. */
  listAnswerBytesMax: WIRE_LIMITS.controlMessageBytesMax - 2_048,

  /** Control messages that wait for the host's credit. Above it the host is gone or hostile: the lane is reset. */
  outboxBytesMax: 4_194_304,
  /** The relay of tool calls: from its start to its sockets; and an answer, its start again included. */
  trafficStartTimeoutMs: 5_000,
  trafficOrderTimeoutMs: 10_000,
  /** Its answer to one order: a relay that says nothing for so long is killed, and another one started. */
  trafficAnswerTimeoutMs: 10_000,
  /** Before a relay that ended is started again. */
  trafficRetryMs: 250,
  /** The helper that repairs, mounts and unmounts: journal recovery of the disk included. */
  repairTimeoutMs: 10_000,
  mountTimeoutMs: 30_000,
  unmountTimeoutMs: 8_000,
  killTimeoutMs: 3_000,
  /** prepare_snapshot waits this long for what is under way. */
  quiesceTimeoutMs: 10_000,

  /** /etc/passwd and /etc/group of the workload are hostile: bigger is refused, not read. */
  accountsFileBytesMax: 1_048_576,
  accountGroupsMax: 64,

  /** Left to the kernel and the agent; the workload's memory.max is MemTotal less this (measured: 52 MiB used). */
  agentMemoryBytes: 104_857_600,
  /** A guest with less memory than that still needs a workload. */
  workloadMemoryBytesMin: 33_554_432,
  /** Threads count too. */
  workloadPidsMax: 1_024,

  /** A ping's clock that differs by more sets ours. Under emulation messages are late by tens of milliseconds. */
  clockSkewMsMax: 500,
  /** How long the answer to a shutdown may take to leave. */
  lastWordsTimeoutMs: 1_000,
  /** Between the answer to a shutdown and the end of the machine. */
  powerOffDelayMs: 50,

  logLineBytesMax: 2_048,
  /** Lines that may come at once, and refill a second: the console is a slow serial line. */
  logBurst: 100,
  logLinesPerSecond: 10,

  /** How long the last frames of a lane may take to leave, before its port is let go anyway. */
  laneCloseTimeoutMs: 1_000,
  /** Between two tries to open a lane's port. */
  portRetryMs: 50,
} as const;
