import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { Failure, messageOf } from "@capsem/base";
import { logFolder, runFolder } from "./home-folders.ts";
import { LOG_LIMITS } from "./limits.ts";
import type { Powers } from "./powers.ts";
import { tokenPath } from "./token-file.ts";

/** The machine's own powers, unconfined: for machines that cannot confine, and for tests. */
export function nodePowers(home: string, port: number): Powers {
  const run = runFolder(home);
  const pidFile = join(run, "gateway.pid");
  const portFile = join(run, "gateway.port");
  return {
    listener: { kind: "address", host: "127.0.0.1", port },
    confine: async () => undefined,
    connectService: () => connectIn(run, "service.sock"),
    // Not waiting for the other end of a pipe: whoever reads it sees that it is no file.
    openToken: async () => openSync(tokenPath(run), constants.O_RDONLY | NO_TRICKS),
    openLog: async () => openLog(join(logFolder(home), "gateway.jsonl")),
    async ready(listening) {
      writeOver(pidFile, `${process.pid}\n`);
      // Last: whoever finds the port may connect.
      writeOver(portFile, `${listening}\n`);
    },
    async release() {
      // Another gateway of this home may have taken them over since.
      if (readIfThere(pidFile) !== `${process.pid}\n`) return;
      rmSync(portFile, { force: true });
      rmSync(pidFile, { force: true });
    },
    nowMs: () => Date.now(),
    monotonicMs: () => performance.now(),
  };
}

/**
 * Connects through a descriptor of the folder: the system cuts a socket's path at 107 bytes without a word, and the
 * descriptor's is short whatever the folder's length.
 */
function connectIn(folder: string, name: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const fd = openSync(folder, constants.O_RDONLY | constants.O_DIRECTORY);
    const socket = connect({ path: `/proc/self/fd/${fd}/${name}` });
    const fail = (error: Error) => {
      closeSync(fd);
      reject(error);
    };
    socket.once("error", fail).once("connect", () => {
      closeSync(fd);
      socket.off("error", fail);
      resolve(socket);
    });
  });
}

/** A link in a file's place would lead elsewhere, a pipe would hold us. */
const NO_TRICKS = constants.O_NOFOLLOW | constants.O_NONBLOCK;

function openLog(path: string): number {
  const fd = openForAppending(path);
  if (fstatSync(fd).size < LOG_LIMITS.fileBytesMax) return fd;
  closeSync(fd);
  renameSync(path, `${path}.1`);
  return openForAppending(path);
}

function openForAppending(path: string): number {
  const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | NO_TRICKS;
  const fd = openSync(path, flags, 0o600);
  const found = fstatSync(fd);
  if (found.isFile() && found.nlink === 1) return fd;
  closeSync(fd);
  throw new Failure("log_unusable", `Cannot write ${JSON.stringify(path)}: it is not a file of one name`);
}

/** Whole or not at all, for readers. */
function writeOver(path: string, text: string): void {
  const temporary = `${path}.${process.pid}.tmp`;
  // Of a namesake that a crash left, or laid there: never written into.
  rmSync(temporary, { force: true });
  writeFileSync(temporary, text, { mode: 0o600, flag: "wx" });
  renameSync(temporary, path);
}

function readIfThere(path: string): string | null {
  try {
    const fd = openSync(path, constants.O_RDONLY | NO_TRICKS);
    try {
      return readFileSync(fd, "utf8");
    } finally {
      closeSync(fd);
    }
  } catch (thrown) {
    if (messageOf(thrown).startsWith("ENOENT")) return null;
    throw thrown;
  }
}
