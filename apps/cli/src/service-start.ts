import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, constants, existsSync, fstatSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { Failure, sleep } from "@capsem/base";
import { ensureOwnFolder, openOwnRoot } from "@capsem/base/own-folder";
import { LOG_TAIL_BYTES, SERVICE_LOSER_GRACE_MS, SERVICE_POLL_MS, SERVICE_START_MS } from "./limits.ts";
import { ownUid } from "./own-home.ts";
import type { Powers } from "./powers.ts";
import type { Progress } from "./progress.ts";

/** Starts the service as a daemon and waits until `answers` says yes. Two starts at once end with one service. */
export async function startService(
  powers: Powers,
  answers: () => Promise<boolean>,
  progress: Progress,
): Promise<void> {
  const script = join(powers.programFolder, "service.cjs");
  if (!existsSync(script))
    throw new Failure("unavailable", `Cannot start the service: ${script} is not built`);
  const logs = join(openOwnRoot(powers.home, ownUid()), "logs");
  ensureOwnFolder(logs, ownUid());
  const logPath = join(logs, "service.out");
  const log = openOutput(logPath);
  const begin = fstatSync(log).size;
  try {
    const child = launch(script, powers, log);
    await waitFor(answers, child, powers, progress, () => tailOf(log, begin), logPath);
  } finally {
    closeSync(log);
  }
}

/** What the service says before it has a log. A link in the file's place would lead elsewhere. */
function openOutput(path: string): number {
  const { O_RDWR, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
  const fd = openSync(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600);
  const found = fstatSync(fd);
  if (found.isFile() && found.nlink === 1) return fd;
  closeSync(fd);
  throw new Failure("file_failed", `Cannot write ${JSON.stringify(path)}: it is not a file of one name`);
}

function launch(script: string, powers: Powers, log: number): ChildProcess {
  const child = spawn(process.execPath, [script, "--home", powers.home], {
    // Not the caller's folder: a daemon must not keep it from being removed or unmounted.
    cwd: powers.home,
    detached: true,
    stdio: ["ignore", log, log],
    env: { ...powers.env, CAPSEM_HOME: powers.home },
  });
  child.unref();
  return child;
}

async function waitFor(
  answers: () => Promise<boolean>,
  child: ChildProcess,
  powers: Powers,
  progress: Progress,
  tail: () => string,
  logPath: string,
): Promise<void> {
  const started = powers.now();
  let deadline = started + SERVICE_START_MS;
  let ended: string | null = null;
  child.once("error", (error) => {
    ended = error.message;
  });
  child.once("exit", (code, signal) => {
    ended = signal ?? `exit code ${code}`;
    // It may have lost the race against another start, whose socket then answers soon.
    deadline = Math.min(deadline, powers.now() + SERVICE_LOSER_GRACE_MS);
  });
  try {
    for (;;) {
      if (await answers()) return;
      const now = powers.now();
      if (now > deadline) break;
      progress.update(`starting the service (${Math.round((now - started) / 1000)} s)`);
      await sleep(SERVICE_POLL_MS);
    }
  } finally {
    progress.end();
  }
  const what =
    ended === null ? `it did not answer within ${SERVICE_START_MS / 1000} s` : `it ended (${ended})`;
  const said = tail().trim();
  const more = said === "" ? `, see ${logPath}` : `\n${said}`;
  throw new Failure("unavailable", `Cannot start the service: ${what}${more}`, { retryable: true });
}

function tailOf(log: number, begin: number): string {
  const { size } = fstatSync(log);
  const from = Math.max(begin, size - LOG_TAIL_BYTES);
  const bytes = Buffer.alloc(Math.max(0, size - from));
  const read = bytes.length === 0 ? 0 : readSync(log, bytes, 0, bytes.length, from);
  return bytes.toString("utf8", 0, read);
}
