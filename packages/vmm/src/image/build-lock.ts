import { createHash } from "node:crypto";
import { connect, createServer, type Server } from "node:net";
import { Failure } from "@capsem/base";
import { BUILD_TIMEOUT_MS } from "./limits.ts";

export interface BuildLock {
  /** Names this lock's scratch folders: under the lock, all of that name are ours to remove. */
  readonly name: string;
  release(): Promise<void>;
}

export interface LockOptions {
  /** What is built, by its real path; two builders of the same thing exclude each other. */
  readonly path: string;
  readonly userId: number;
  readonly pid: number;
  readonly signal?: AbortSignal | undefined;
  readonly onWait?: (holderPid: string) => void;
}

/**
 * One builder at a time. The lock is an abstract socket, so the kernel frees it when the holder dies, however
 * it dies. Who waits is connected to the holder and learns its pid; the end of the connection means: try again.
 */
export async function takeBuildLock(options: LockOptions): Promise<BuildLock> {
  const key = `${options.userId}:${options.path}`;
  const name = createHash("sha256").update(key).digest("hex").slice(0, 16);
  const address = `\0capsem-image-${name}`;
  const deadline = AbortSignal.timeout(BUILD_TIMEOUT_MS);
  for (;;) {
    if (options.signal?.aborted === true)
      throw new Failure("cancelled", "Stopped waiting for the image: cancelled");
    if (deadline.aborted) throw new Failure("timeout", "Cannot build the image: another build does not end");
    const server = await listen(address, options.pid);
    if (server !== undefined) return { name, release: () => close(server) };
    const signal = options.signal === undefined ? deadline : AbortSignal.any([deadline, options.signal]);
    await awaitHolder(address, signal, options.onWait);
  }
}

interface LockServer {
  readonly server: Server;
  readonly waiters: Set<{ destroy(): void }>;
}

function listen(address: string, pid: number): Promise<LockServer | undefined> {
  return new Promise((resolve, reject) => {
    const waiters = new Set<{ destroy(): void }>();
    const server = createServer((socket) => {
      waiters.add(socket);
      socket.on("error", () => socket.destroy());
      socket.once("close", () => waiters.delete(socket));
      socket.resume();
      socket.write(`${pid}\n`);
    });
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(undefined);
      else reject(error);
    });
    server.listen(address, () => resolve({ server, waiters }));
  });
}

function close(lock: LockServer): Promise<void> {
  return new Promise((resolve) => {
    lock.server.close(() => resolve());
    for (const waiter of lock.waiters) waiter.destroy();
  });
}

/** Resolves when the holder is gone, or the signal fires; the caller looks which. */
function awaitHolder(address: string, signal: AbortSignal, onWait?: (pid: string) => void): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(address);
    const onAbort = (): void => {
      socket.destroy();
    };
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    socket.once("data", (bytes) => onWait?.(bytes.toString("utf8").trim()));
    socket.on("error", () => socket.destroy());
    socket.once("close", () => {
      signal.removeEventListener("abort", onAbort);
      // The next turn of the event loop: a holder that is just closing must not make us spin.
      setImmediate(resolve);
    });
  });
}
