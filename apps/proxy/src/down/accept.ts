import { concat, Failure, within } from "@capsem/base";
import { type MuxStream, parseMetaLine, prefixedStream, type TrafficKind, trafficKindOf } from "@capsem/wire";
import type { Rail } from "../conversation.ts";
import { ByteBudget } from "./byte-budget.ts";
import { serveFramed } from "./framed-client.ts";
import { MCP_HOST, MCP_PORT } from "./http-checks.ts";
import { HttpFront } from "./http-front.ts";
import { DOWN_LIMITS, type DownLimits } from "./limits.ts";

export interface TrafficDoorOptions {
  readonly rail: Rail;
  /** Unguessable, of visible ASCII. */
  readonly newSessionId: () => string;
  /** A clock that only goes forward. */
  readonly nowMs: () => number;
  /** A bug of ours, which took one stream with it. */
  readonly report: (thrown: unknown) => void;
  readonly limits?: DownLimits;
}

/** Where the streams of a VM's traffic lane come in: each is told apart by its first bytes and given to its server. */
export class TrafficDoor {
  readonly #options: TrafficDoorOptions;
  readonly #limits: DownLimits;
  readonly #begun: ByteBudget;
  readonly #http: HttpFront;
  readonly #streams = new Set<MuxStream>();
  #accepted = 0;

  constructor(options: TrafficDoorOptions) {
    this.#options = options;
    this.#limits = options.limits ?? DOWN_LIMITS;
    this.#begun = new ByteBudget(this.#limits.begunBytesMax);
    const { rail, newSessionId, nowMs, report } = options;
    this.#http = new HttpFront({
      rail,
      newSessionId,
      nowMs,
      report,
      begun: this.#begun,
      limits: this.#limits,
    });
  }

  /** HTTP on its own, for streams that carry nothing else. */
  get http(): HttpFront {
    return this.#http;
  }

  /** Bytes of messages that have begun. */
  get begunBytes(): number {
    return this.#begun.usedBytes;
  }

  /** Takes a stream of port 5002 over. Resolves when it is given on, and for a framed client when that is over. */
  async accept(stream: MuxStream): Promise<void> {
    this.#streams.add(stream);
    void stream.closed.then(() => this.#streams.delete(stream));
    try {
      const { processName, rest } = await this.#metaLine(stream);
      const { kind, whole } = await this.#kindOf(rest);
      await this.#give(kind, whole, processName);
    } catch (thrown) {
      const isOurs = !(thrown instanceof Failure);
      stream.reset(isOurs ? "internal" : "refused");
      if (isOurs) this.#options.report(thrown);
    }
  }

  /** Every stream is reset, and with it every client is gone. */
  close(): void {
    this.#http.close();
    for (const stream of [...this.#streams]) stream.reset("cancelled");
  }

  async #give(kind: TrafficKind | null, stream: MuxStream, processName: string): Promise<void> {
    const { rail, report } = this.#options;
    switch (kind) {
      case "mcp": {
        this.#accepted += 1;
        const taintKey = `framed:${this.#accepted}`;
        const options = {
          rail,
          stream,
          processName,
          taintKey,
          report,
          begun: this.#begun,
          limits: this.#limits,
        };
        return await serveFramed(options);
      }
      case "http":
        return this.#http.accept(stream, nameOrNull(processName));
      case null:
        // It connected and left.
        return stream.end();
      default:
        stream.reset("refused");
        rail.reserved({
          host: MCP_HOST,
          port: MCP_PORT,
          method: null,
          path: null,
          processName: nameOrNull(processName),
          status: null,
        });
    }
  }

  async #metaLine(stream: MuxStream): Promise<{ processName: string; rest: MuxStream }> {
    const deadlineMs = this.#options.nowMs() + this.#limits.metaLineTimeoutMs;
    let bytes: Uint8Array = new Uint8Array(0);
    for (;;) {
      const line = parseMetaLine(bytes);
      if (line !== undefined) {
        const rest = prefixedStream(stream, bytes.subarray(line.byteLength));
        return { processName: line.processName, rest };
      }
      const chunk = await this.#readBy(stream, deadlineMs);
      if (chunk === null) throw new Failure("truncated", "Cannot read stream: it ended in its metadata line");
      bytes = concat([bytes, chunk]);
    }
  }

  /** Null: the stream ended before it said anything. */
  async #kindOf(stream: MuxStream): Promise<{ kind: TrafficKind | null; whole: MuxStream }> {
    const deadlineMs = this.#options.nowMs() + this.#limits.firstByteTimeoutMs;
    let bytes: Uint8Array = new Uint8Array(0);
    for (;;) {
      const kind = trafficKindOf(bytes);
      if (kind !== undefined) return { kind, whole: prefixedStream(stream, bytes) };
      const chunk = await this.#readBy(stream, deadlineMs);
      if (chunk === null) return { kind: bytes.length === 0 ? null : "other", whole: stream };
      bytes = concat([bytes, chunk]);
    }
  }

  #readBy(stream: MuxStream, deadlineMs: number): Promise<Uint8Array | null> {
    const leftMs = Math.max(0, deadlineMs - this.#options.nowMs());
    const late = () => new Failure("timeout", "Cannot read stream: it says nothing");
    return within(stream.read(), leftMs, late);
  }
}

function nameOrNull(name: string): string | null {
  return name === "" ? null : name;
}
