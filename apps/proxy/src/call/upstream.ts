import type { ContractParams, TOOL_SERVER_METHODS } from "@capsem/api";
import { Failure, ignore, messageOf } from "@capsem/base";
import { RecordDecoder, type RecordKind, writeRecord } from "@capsem/mcp-protocol";
import { discardRest, type MuxStream } from "@capsem/wire";
import type { Neighbour } from "../neighbour.ts";
import type { Answer } from "./caller.ts";
import { untilAborted } from "./until-aborted.ts";

export type UpstreamRequest = ContractParams<typeof TOOL_SERVER_METHODS, "server.request">;

/** What a server says in the course of a request; both are whole messages. */
export interface Ears {
  notified(message: string): Promise<void>;
  /**
   * Answers with the whole response. Never rejects. `tell` takes the client's notifications about it meanwhile. The signal
   * aborts when nobody waits for it any more: the request has its answer, or is over without one.
   */
  asked(message: string, tell: (message: string) => void, signal: AbortSignal): Promise<string>;
}

const ACCEPTED: readonly RecordKind[] = ["notification", "request", "result", "error"];

/**
 * One request to a tool server, and its answer as the server wrote it. The signal resets the stream, which cancels it
 * there; its reason is thrown. Otherwise throws Failure "not_found", "upstream_failed", "timeout".
 */
export async function requestUpstream(
  neighbour: Pick<Neighbour, "ready" | "use">,
  request: UpstreamRequest,
  ears: Ears,
  signal: AbortSignal,
): Promise<Answer> {
  let stream: MuxStream | undefined;
  const questions = new Questions(ears);
  try {
    const peer = neighbour.ready ?? (await untilAborted(neighbour.use(), signal));
    ({ stream } = await peer.open("server.request", request, { signal }));
    return await readAnswer(stream, ears, questions, signal);
  } catch (thrown) {
    stream?.reset("cancelled");
    if (signal.aborted) throw signal.reason;
    throw translated(request.server, thrown);
  } finally {
    questions.close();
  }
}

async function readAnswer(
  stream: MuxStream,
  ears: Ears,
  questions: Questions,
  signal: AbortSignal,
): Promise<Answer> {
  const decoder = new RecordDecoder(ACCEPTED);
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
    for (const record of decoder.push(chunk)) {
      const { kind } = record;
      if (kind === "result" || kind === "error") {
        // Before the end: nothing is written behind it.
        questions.close();
        stream.end();
        void discardRest(stream);
        return record as Answer;
      }
      const { text } = record;
      // A client that takes nothing keeps nobody waiting beyond the end of its request.
      if (kind === "notification") await untilAborted(ears.notified(text), signal);
      else void questions.answer(stream, text);
    }
  }
  decoder.end();
  throw new Failure("upstream_failed", "Cannot call the server: it ended without an answer");
}

/** What a server asks in the course of one request. A server need not wait: its answer ends its questions. */
class Questions {
  readonly #ears: Ears;
  /** Of all of them; most requests have none. */
  #over: AbortController | undefined;
  #isClosed = false;

  constructor(ears: Ears) {
    this.#ears = ears;
  }

  close(): void {
    this.#isClosed = true;
    this.#over?.abort(new Failure("cancelled", "Cannot ask the client: its call is over"));
  }

  /** Where it is over by then nobody reads what the client says. Never rejects but for a bug. */
  async answer(stream: MuxStream, message: string): Promise<void> {
    this.#over ??= new AbortController();
    const tell = this.#teller(stream);
    const response = await this.#ears.asked(message, tell, this.#over.signal);
    if (this.#isClosed) return;
    try {
      await writeRecord(stream, "response", response);
    } catch (thrown) {
      if (!(thrown instanceof Failure)) throw thrown;
    }
  }

  #teller(stream: MuxStream): (notification: string) => void {
    let isTelling = false;
    return (notification) => {
      // What comes before the last one has left says less than what will come.
      if (isTelling || this.#isClosed) return;
      isTelling = true;
      const written = writeRecord(stream, "notification", notification);
      ignore(
        written.finally(() => {
          isTelling = false;
        }),
      );
    };
  }
}

/** What the neighbour's end means to who called. */
function translated(server: string, thrown: unknown): unknown {
  if (!(thrown instanceof Failure)) return thrown;
  switch (thrown.kind) {
    case "peer_lost":
    case "lane_lost":
    case "reset":
    case "truncated":
      return new Failure("upstream_failed", `Cannot call "${server}": the tool server's process was lost`, {
        ...{ cause: thrown, retryable: true },
      });
    case "too_many_streams":
      return new Failure("busy", `Cannot call "${server}": too many calls run`, {
        cause: thrown,
        retryable: true,
      });
    case "bad_message":
    case "too_large":
    case "internal":
      return new Failure("upstream_failed", `Cannot call "${server}": ${messageOf(thrown)}`, {
        cause: thrown,
      });
    default:
      return thrown;
  }
}
