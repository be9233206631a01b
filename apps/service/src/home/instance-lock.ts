import { createHash } from "node:crypto";
import { createServer } from "node:net";
import { Failure } from "@capsem/base";

export interface InstanceLock {
  release(): void;
}

/**
 * Held by the one service of a user and home until the process ends, however it ends: an abstract Unix socket
 * has no file that could be left behind. `home` must be a real path, so that two spellings meet. Throws
 * Failure("already_running") and has touched nothing then.
 */
export function takeInstanceLock(uid: number, home: string): Promise<InstanceLock> {
  const digest = createHash("sha256").update(`${uid}:${home}`).digest("hex").slice(0, 32);
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EADDRINUSE") reject(error);
      else {
        reject(
          new Failure("already_running", `Cannot start the service: another one runs for "${home}"`, {
            cause: error,
          }),
        );
      }
    });
    server.listen(`\0capsem-service-${digest}`, () => {
      server.unref();
      resolve({
        release() {
          server.close();
        },
      });
    });
  });
}
