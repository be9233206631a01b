import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { apiFailure } from "@capsem/api";
import { answerHeaders } from "./cors.ts";
import { CONNECTION_LIMITS } from "./limits.ts";
import { refuseSocket } from "./send-error.ts";

/** Whether a connection has anything under way, and whose end is whose. */
type Phase =
  /** No request, or one whose headers are not whole. */
  | "idle"
  /** A request is being looked at: what it has shown is not known yet. */
  | "asking"
  /** A request is being answered. */
  | "answering"
  /** A WebSocket, which ends by its own rules. */
  | "tunnel";

interface Connection {
  readonly socket: Socket;
  readonly sinceMs: number;
  phase: Phase;
  /** Of the token that it showed last; null: a stranger. */
  generation: number | null;
}

/**
 * All clients' connections. Strangers, who have not shown the token yet, have few places and lose the oldest first;
 * members, who have, keep theirs. So nobody without the token keeps out those who have it.
 */
export class Connections {
  readonly #all = new Map<Duplex, Connection>();
  /** Were sent away and may still read why. */
  readonly #leaving = new Set<Socket>();
  readonly #nowMs: () => number;
  #members = 0;

  constructor(http: Server, nowMs: () => number) {
    this.#nowMs = nowMs;
    http.on("connection", (socket: Socket) => this.#take(socket));
  }

  get memberCount(): number {
    return this.#members;
  }

  /** A request came. False: its connection was sent away before, and the request is not looked at. */
  ask(socket: Duplex): boolean {
    const connection = this.#all.get(socket);
    if (connection === undefined) return false;
    connection.phase = "asking";
    return true;
  }

  /** The request on it showed the token of this generation. False: there are too many members. */
  welcome(socket: Duplex, generation: number): boolean {
    const connection = this.#all.get(socket);
    if (connection === undefined) return false;
    if (connection.generation === null) {
      if (this.#members >= CONNECTION_LIMITS.membersMax && !this.#endIdleMember()) return false;
      this.#members += 1;
    }
    connection.generation = generation;
    return true;
  }

  isMember(socket: Duplex): boolean {
    return (this.#all.get(socket)?.generation ?? null) !== null;
  }

  enter(socket: Duplex, phase: Phase): void {
    const connection = this.#all.get(socket);
    if (connection !== undefined) connection.phase = phase;
  }

  /**
   * The token was replaced. Exchanges that an older one began end; a connection that has none under way becomes a
   * stranger's: closing it could lose the request that is just coming, which may have the new token.
   */
  endOlderThan(generation: number): void {
    for (const connection of this.#all.values()) {
      const { socket, phase, generation: own } = connection;
      if (own === null || own >= generation || phase === "tunnel") continue;
      if (phase === "answering") socket.destroy();
      else {
        connection.generation = null;
        this.#members -= 1;
      }
    }
  }

  #take(socket: Socket): void {
    this.#all.set(socket, { socket, sinceMs: this.#nowMs(), phase: "idle", generation: null });
    socket.once("close", () => this.#forget(socket));
    this.#sendStrangersAway();
  }

  #forget(socket: Socket): void {
    const connection = this.#all.get(socket);
    if (connection !== undefined && connection.generation !== null) this.#members -= 1;
    this.#all.delete(socket);
    this.#leaving.delete(socket);
  }

  /**
   * Above their usual number strangers leave once they had the time to show the token; above their highest number they
   * leave at once. The oldest goes first, and one that waits for nothing before one that is being answered.
   */
  #sendStrangersAway(): void {
    const strangers = [...this.#all.values()].filter(({ generation }) => generation === null);
    let over = strangers.length - CONNECTION_LIMITS.strangersMax;
    if (over <= 0) return;
    const tooMany = strangers.length - CONNECTION_LIMITS.strangersBurstMax;
    const lateMs = this.#nowMs() - CONNECTION_LIMITS.strangerGraceMs;
    const idle = strangers.filter(({ phase }) => phase === "idle");
    const busy = strangers.filter(({ phase }) => phase !== "idle");
    let sent = 0;
    for (const stranger of [...idle, ...busy]) {
      if (over <= 0) return;
      if (stranger.sinceMs > lateMs && sent >= tooMany) continue;
      this.#sendAway(stranger);
      sent += 1;
      over -= 1;
    }
  }

  /** An answer on its way is not mixed with another: such a connection is cut. */
  #sendAway({ socket, phase }: Connection): void {
    this.#all.delete(socket);
    if (phase !== "idle" || this.#leaving.size >= CONNECTION_LIMITS.leavingMax) {
      socket.destroy();
      return;
    }
    this.#leaving.add(socket);
    refuseSocket(socket, crowded(), BARE);
  }

  /** A kept connection may close at any time, as every client knows. */
  #endIdleMember(): boolean {
    for (const { socket, phase, generation } of this.#all.values()) {
      if (phase !== "idle" || generation === null) continue;
      this.#forget(socket);
      socket.destroy();
      return true;
    }
    return false;
  }
}

const BARE = answerHeaders(null);

export function crowded() {
  return apiFailure("throttled", "Cannot serve the request: too many connections are open, nothing was done");
}
