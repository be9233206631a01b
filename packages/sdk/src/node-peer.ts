import { connect, type Socket } from "node:net";
import { sleep } from "@capsem/base";
import { CapsemError } from "./error.ts";
import { CONNECT_MS, PEER_LOOK_PAUSE_MS, PEER_LOOKS } from "./limits.ts";
import { findListener, type Listener } from "./node-listeners.ts";

/**
 * Connects to one address of this machine for what only the owner of the token file may be sent. A port that nobody
 * holds is free to every user, and whoever has it would get the token.
 *
 * The proof needs no look at the connection itself: a socket of the right user that listened before the connection was
 * made, and is still there after it, listened all the while, and nobody else could take the connection.
 */
export class CheckedPort {
  readonly #host: string;
  readonly #port: number;
  /** Was seen last, and was the right user's. */
  #seen: Listener = null;

  constructor(host: string, port: number) {
    this.#host = host;
    this.#port = port;
  }

  /** Rejects with nothing sent. */
  async connect(ownerUid: number): Promise<Socket> {
    for (let look = 0; look < PEER_LOOKS; look += 1) {
      if (look > 0) await sleep(PEER_LOOK_PAUSE_MS);
      const before = this.#seen ?? this.#find(ownerUid);
      const socket = await connectTo(this.#host, this.#port);
      try {
        const after = this.#find(ownerUid);
        if (isSame(before, after)) return socket;
      } catch (thrown) {
        socket.destroy();
        throw thrown;
      }
      // The gateway was started anew meanwhile, or the list changed under our eyes.
      socket.destroy();
    }
    throw refused("no process of this machine is seen behind its address");
  }

  #find(ownerUid: number): Listener {
    this.#seen = null;
    const found = findListener(this.#host, this.#port);
    if (found !== null && found !== "unknown" && found.uid !== ownerUid)
      throw refused(
        `another user listens there (uid ${found.uid}, and the token file is of uid ${ownerUid})`,
      );
    this.#seen = found;
    return found;
  }
}

function isSame(before: Listener, after: Listener): boolean {
  if (before === null || after === null) return false;
  if (before === "unknown" || after === "unknown") return before === after;
  return before.inode === after.inode && before.uid === after.uid;
}

function connectTo(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true });
    const late = () =>
      socket.destroy(
        new CapsemError(
          "unavailable",
          `Cannot reach the gateway: it took no connection within ${CONNECT_MS} ms`,
        ),
      );
    const timer = setTimeout(late, CONNECT_MS);
    // Also errors that come after this: whoever takes the socket over has its own listener.
    socket.on("error", reject);
    socket.once("close", () => clearTimeout(timer));
    socket.once("connect", () => {
      clearTimeout(timer);
      resolve(socket);
    });
  });
}

function refused(why: string): CapsemError {
  return new CapsemError("unauthorized", `Cannot use the gateway: ${why}; nothing was sent`);
}
