import type { HttpVisit } from "./http-visit.ts";
import type { DownLimits } from "./limits.ts";

export interface AnswerStream {
  /** Resolves when the client takes more. False: it does not get it. */
  send(message: string): Promise<boolean>;
  comment(): void;
  end(): void;
}

/** An answer as server-sent events. Started at once; a comment goes out whenever it was idle for long. */
export class EventStream implements AnswerStream {
  readonly #visit: HttpVisit;
  readonly #limits: DownLimits;
  readonly #keepAlive: NodeJS.Timeout;
  #isOver = false;

  constructor(visit: HttpVisit, headers: Readonly<Record<string, string>>, limits: DownLimits) {
    this.#visit = visit;
    this.#limits = limits;
    this.#keepAlive = setInterval(() => this.comment(), limits.keepAliveMs);
    visit.response.writeHead(200, {
      "Content-Type": "text/event-stream",
      "Cache-Control": "no-cache, no-transform",
      ...headers,
    });
    visit.response.flushHeaders();
    visit.onOver(() => this.#close());
  }

  /** `id`: of the event, where its client may come back for what follows. False: the client is gone. */
  async send(message: string, id?: string): Promise<boolean> {
    const { response } = this.#visit;
    if (this.#isOver) return false;
    if (response.writableLength > this.#limits.unsentBytesMax) {
      // It takes nothing, and whoever sends does not wait.
      response.destroy();
      return false;
    }
    this.#keepAlive.refresh();
    if (response.write(eventOf(message, id))) return true;
    return await this.#taken();
  }

  /** Where to go on after a cut, and when to ask for it. */
  prime(id: string, retryMs: number): void {
    if (!this.#isOver) this.#visit.response.write(`id: ${id}\nretry: ${retryMs}\ndata: \n\n`);
  }

  comment(): void {
    if (!this.#isOver && this.#visit.response.writableLength === 0) {
      this.#visit.response.write(": keep-alive\n\n");
    }
  }

  end(): void {
    if (this.#isOver) return;
    this.#close();
    this.#visit.response.end();
  }

  #close(): void {
    this.#isOver = true;
    clearInterval(this.#keepAlive);
  }

  #taken(): Promise<boolean> {
    const { response } = this.#visit;
    return new Promise((resolve) => {
      const drained = () => {
        takeBack();
        resolve(true);
      };
      response.once("drain", drained);
      const takeBack = this.#visit.onOver(() => {
        response.off("drain", drained);
        resolve(false);
      });
    });
  }
}

/** A JSON text may hold newlines between its tokens; each line of it is one of the event's. */
function eventOf(message: string, id: string | undefined): string {
  const isOneLine = !message.includes("\n") && !message.includes("\r");
  const data = isOneLine ? message : message.split(/\r\n|\r|\n/).join("\ndata: ");
  const idLine = id === undefined ? "" : `id: ${id}\n`;
  return `event: message\n${idLine}data: ${data}\n\n`;
}
