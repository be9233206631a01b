import { type Deferred, defer, Failure, within } from "@capsem/base";
import {
  idKeyOf,
  META_KEYS,
  memberOf,
  NOTIFICATIONS,
  notificationText,
  requestText,
  withMember,
} from "@capsem/mcp-protocol";
import type { Answer, Question } from "../call/caller.ts";
import type { Client } from "../conversation.ts";
import { plainObject } from "../judge/plain-json.ts";
import { PROXY_LIMITS } from "../limits.ts";

interface Open {
  readonly answer: Deferred<Answer>;
  readonly onProgress: Question["onProgress"];
  /** JSON text of what the server calls its progress; undefined: it wants to hear of none. */
  readonly tokenText: string | undefined;
  /** How many messages of progress may still pass. */
  progressLeft: number;
}

/** Requests of servers to one client. Their ids and progress tokens are ours: two servers may count alike. */
export class AskedClient {
  readonly #client: Client;
  readonly #open = new Map<string, Open>();
  #last = 0;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Throws Failure "unreachable" where there is no way to it, "timeout", and "cancelled" by the signal. */
  async ask(
    { method, paramsText, onProgress }: Question,
    about: string,
    signal: AbortSignal,
  ): Promise<Answer> {
    this.#last += 1;
    const idText = String(this.#last);
    const answer = defer<Answer>();
    const { text, tokenText } = withOurToken(paramsText, idText);
    this.#open.set(idText, { answer, onProgress, tokenText, progressLeft: PROXY_LIMITS.progressOfAskMax });
    try {
      if (!(await this.#client.send(requestText(idText, method, text), about))) {
        throw new Failure("unreachable", "Cannot ask the client: there is no way to it");
      }
      const late = () => new Failure("timeout", "Cannot ask the client: it does not answer");
      return await within(answer.promise, PROXY_LIMITS.clientAnswerTimeoutMs, late, signal);
    } catch (thrown) {
      if (thrown instanceof Failure && (thrown.kind === "cancelled" || thrown.kind === "timeout")) {
        const params = `{"requestId":${idText},"reason":"it is no longer needed"}`;
        void this.#client.send(notificationText(NOTIFICATIONS.cancelled, params), about);
      }
      throw thrown;
    } finally {
      this.#open.delete(idText);
    }
  }

  /** What answers nothing that is asked is dropped. */
  answered(idText: string, answer: Answer): void {
    this.#open.get(idKeyOf(idText))?.answer.resolve(answer);
  }

  /** The same of progress in what nobody wants to hear of, and of what is too much or cannot be read. */
  progressed(paramsText: string): void {
    if (paramsText.length > PROXY_LIMITS.progressCharsMax) return;
    try {
      const params = plainObject(paramsText);
      const { progressToken } = params;
      const open = typeof progressToken === "number" ? this.#open.get(String(progressToken)) : undefined;
      if (open?.tokenText === undefined || open.progressLeft === 0) return;
      open.progressLeft -= 1;
      open.onProgress({ ...params, progressToken: JSON.parse(open.tokenText) as string | number });
    } catch (thrown) {
      if (!(thrown instanceof Failure)) throw thrown;
    }
  }
}

/** A request that wants to hear of progress, with our token instead of its server's. */
function withOurToken(
  paramsText: string | undefined,
  ourToken: string,
): Pick<Open, "tokenText"> & { readonly text: string | undefined } {
  const meta = paramsText?.includes('"_meta"') === true ? memberOf(paramsText, "_meta") : undefined;
  const tokenText = meta?.startsWith("{") === true ? memberOf(meta, META_KEYS.progressToken) : undefined;
  if (
    paramsText === undefined ||
    meta === undefined ||
    tokenText === undefined ||
    !/^["0-9-]/.test(tokenText)
  ) {
    return { text: paramsText, tokenText: undefined };
  }
  const ours = withMember(meta, META_KEYS.progressToken, ourToken);
  return { text: withMember(paramsText, "_meta", ours), tokenText };
}
