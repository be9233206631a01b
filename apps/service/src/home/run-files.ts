import { chmod, open, rm } from "node:fs/promises";
import type { Server } from "node:net";
import { writeFileAtomic } from "./atomic-file.ts";
import type { HomeLayout } from "./layout.ts";

export interface RunFiles {
  close(): Promise<void>;
}

/**
 * Listens at run/service.sock and writes run/service.pid; stale ones of a dead service are replaced, so the
 * caller must hold the instance lock. A socket path above 107 bytes would be cut silently: the folder's
 * descriptor makes it short, whatever the home's length.
 */
export async function openRunFiles(layout: HomeLayout, server: Server, pid: number): Promise<RunFiles> {
  await rm(layout.socket, { force: true });
  const folder = await open(layout.run, "r");
  try {
    // First, so that whoever reaches the socket finds whose it is.
    await writeFileAtomic(layout.pidFile, `${pid}\n`, false);
    await listenAt(server, `/proc/self/fd/${folder.fd}/service.sock`);
    await chmod(layout.socket, 0o600);
  } catch (thrown) {
    await folder.close();
    throw thrown;
  }
  return {
    async close() {
      await rm(layout.socket, { force: true });
      await rm(layout.pidFile, { force: true });
      if (server.listening) server.close();
      await folder.close();
    },
  };
}

function listenAt(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(path, () => {
      server.off("error", reject);
      resolve();
    });
  });
}
