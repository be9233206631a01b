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
import { messageOf } from "@capsem/base";
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
    openToken: async () => openSync(tokenPath(run), constants.O_RDONLY | constants.O_NOFOLLOW),
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

function openLog(path: string): number {
  const open = () => openSync(path, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT, 0o600);
  const fd = open();
  if (fstatSync(fd).size < LOG_LIMITS.fileBytesMax) return fd;
  closeSync(fd);
  renameSync(path, `${path}.1`);
  return open();
}

/** Whole or not at all, for readers. */
function writeOver(path: string, text: string): void {
  const temporary = `${path}.${process.pid}.tmp`;
  writeFileSync(temporary, text, { mode: 0o600 });
  renameSync(temporary, path);
}

function readIfThere(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch (thrown) {
    if (messageOf(thrown).startsWith("ENOENT")) return null;
    throw thrown;
  }
}
