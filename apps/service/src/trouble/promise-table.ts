/**
 * From when on a successful operation is slow (docs/promises.md has what is measured; these leave room for a
 * machine that is busy). Routes by name, then what is measured inside one. Work of the user's has no promise.
 */
export const PROMISED_MS: Readonly<Record<string, number>> = {
  status: 500,
  stats: 2_000,
  list: 1_000,
  info: 500,
  vmStatus: 250,
  create: 2_000,
  start: 2_000,
  /** Ten seconds in order, then forced. */
  stop: 11_000,
  delete: 5_000,
  rename: 1_000,
  persist: 1_000,
  jobs: 1_000,
  jobSignal: 1_000,
  logs: 1_000,
  hostLogs: 2_000,
  fileStat: 1_000,
  fileMkdir: 1_000,
  fileRename: 1_000,
  /** An exec or run without the time that its command took in the guest. */
  "exec overhead": 250,
  "run overhead": 2_500,
};
