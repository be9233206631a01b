import { type MessagePort, receiveMessageOnPort } from "node:worker_threads";
import { type AppendRequest, LedgerWriter } from "@capsem/ledger";
import { APP_LIMITS } from "./limits.ts";
import { type WriterAnswer, type WriterMessage, wordsOf } from "./writer-message.ts";

export interface WriterThreadOptions {
  readonly root: string;
  readonly bytesMax: number;
  readonly port: MessagePort;
  /** Changes with every message; the thread sleeps on it. */
  readonly wake: Int32Array;
}

/**
 * The thread that commits: it sleeps until something comes, takes what is there, commits it as one transaction, and
 * answers all of it. Returns after `end`. It has no event loop meanwhile, and needs none.
 */
export function runWriter({ root, bytesMax, port, wake }: WriterThreadOptions): void {
  const writer = new LedgerWriter({ root, bytesMax, now: Date.now });
  for (;;) {
    const seen = Atomics.load(wake, 0);
    const { appends, other } = drain(port);
    if (appends.length > 0) port.postMessage(commit(writer, appends));
    if (other !== null) {
      const answer = answerTo(writer, other);
      port.postMessage([answer]);
      if (other.verb === "end") return;
    }
    if (appends.length === 0 && other === null) Atomics.wait(wake, 0, seen);
  }
}

type AppendMessage = Extract<WriterMessage, { verb: "append" }>;

/** Appends up to the size of a transaction, or up to a message of another kind, which then has its turn. */
function drain(port: MessagePort): { appends: AppendMessage[]; other: WriterMessage | null } {
  const appends: AppendMessage[] = [];
  let rows = 0;
  let characters = 0;
  while (rows < APP_LIMITS.drainRowsMax && characters < APP_LIMITS.drainBytesMax) {
    const message = receiveMessageOnPort(port)?.message as WriterMessage | undefined;
    if (message === undefined) break;
    if (message.verb !== "append") return { appends, other: message };
    appends.push(message);
    rows += message.params.rows.length;
    characters += message.params.characters;
  }
  return { appends, other: null };
}

function commit(writer: LedgerWriter, messages: readonly AppendMessage[]): WriterAnswer[] {
  const requests: AppendRequest[] = messages.map(({ params }) => params);
  return writer.append(requests).map((end, index) => {
    const id = messages[index]?.id ?? 0;
    return end.kind === "taken" ? { id, value: end.standing } : { id, failure: wordsOf(end.failure) };
  });
}

function answerTo(writer: LedgerWriter, message: WriterMessage): WriterAnswer {
  try {
    return { id: message.id, value: run(writer, message) ?? null };
  } catch (thrown) {
    return { id: message.id, failure: wordsOf(thrown) };
  }
}

function run(writer: LedgerWriter, message: WriterMessage): unknown {
  switch (message.verb) {
    case "open":
      return writer.open(message.params);
    case "append":
      return writer.append([message.params]);
    case "sign": {
      const { ledger, head, signature, keyId } = message.params;
      return writer.sign(ledger, head, signature, keyId);
    }
    case "close":
      return writer.close(message.params.producer, message.params.ledger);
    case "endProducer":
      return wordsOfAll(writer.endProducer(message.params.producer));
    case "release":
      return writer.release(message.params.ledger);
    case "limit":
      return writer.limit(message.params.bytesMax);
    case "end":
      return wordsOfAll(writer.end());
  }
}

function wordsOfAll(failures: readonly { ledger: string; failure: unknown }[]): string[] {
  return failures.map(({ ledger, failure }) => `${ledger}: ${wordsOf(failure).message}`);
}
