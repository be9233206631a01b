import type { OwnerParams, OwnerResult } from "@capsem/api";
import { Failure, ignore, messageOf, within } from "@capsem/base";
import { encodeMessagePack, type MuxStream, PORTS } from "@capsem/wire";
import type { GuestLink } from "./guest-link.ts";
import { OWNER_LIMITS } from "./limits.ts";

/** The answer to a refused upload is on its way when the stream is reset. */
const ANSWER_AFTER_RESET_MS = 1_000;
const WAIT = { timeoutMs: OWNER_LIMITS.fileAnswerTimeoutMs };

/** File and tree operations: questions over control, bytes over port 5009 on bulk, piped without a look. */
export class Files {
  readonly #link: GuestLink;

  constructor(link: GuestLink) {
    this.#link = link;
  }

  async stat(params: OwnerParams<"file.stat">): Promise<OwnerResult<"file.stat">> {
    const answer = await this.#link.requests.ask("file_stat", { ...params, follow: false }, WAIT);
    if (answer.name !== "file_answer" || answer.body.entry === undefined) throw unexpected("stat");
    return answer.body.entry;
  }

  async list(params: OwnerParams<"file.list">): Promise<OwnerResult<"file.list">> {
    const answer = await this.#link.requests.ask("file_list", params, WAIT);
    if (answer.name !== "file_answer") throw unexpected("list");
    return {
      entries: answer.body.entries ?? [],
      total: answer.body.total ?? 0,
      more: answer.body.more ?? false,
    };
  }

  async mkdir(params: OwnerParams<"file.mkdir">): Promise<void> {
    await this.#link.requests.ask("file_mkdir", params, WAIT);
  }

  async rename(params: OwnerParams<"file.rename">): Promise<void> {
    await this.#link.requests.ask("file_rename", params, WAIT);
  }

  async remove(params: OwnerParams<"file.remove">): Promise<void> {
    await this.#link.requests.ask("file_remove", params, WAIT);
  }

  /** `signal` is the caller's, who may leave before anybody runs what comes of this. */
  async read(
    params: OwnerParams<"file.read">,
    signal: AbortSignal,
  ): Promise<{ size: number; run(out: MuxStream): Promise<void> }> {
    const { id, stream } = this.#transferDown(signal);
    try {
      const answer = await this.#link.requests.ask("file_read", params, { id, signal, ...WAIT });
      if (answer.name !== "file_answer") throw unexpected("read");
      return { size: answer.body.total ?? 0, run: (out) => pipe(stream, out) };
    } catch (cause) {
      stream.reset("cancelled");
      throw cause;
    }
  }

  async treeOut(
    params: OwnerParams<"tree.read">,
    signal: AbortSignal,
  ): Promise<{ run(out: MuxStream): Promise<void> }> {
    const { id, stream } = this.#transferDown(signal);
    try {
      await this.#link.requests.ask("tree_out", params, { id, signal, ...WAIT });
      return { run: (out) => pipe(stream, out) };
    } catch (cause) {
      stream.reset("cancelled");
      throw cause;
    }
  }

  /** Bytes from `input` into the guest; the answer comes when they are in place. */
  async write(params: OwnerParams<"file.write">, input: MuxStream): Promise<void> {
    await this.#upload(input, (id) =>
      this.#link.requests.ask(
        "file_write",
        { ...params, make_parents: true },
        { id, timeoutMs: UPLOAD_TIMEOUT_MS },
      ),
    );
  }

  async treeIn(params: OwnerParams<"tree.write">, input: MuxStream): Promise<void> {
    await this.#upload(input, (id) =>
      this.#link.requests.ask("tree_in", params, { id, timeoutMs: UPLOAD_TIMEOUT_MS }),
    );
  }

  /** Sends one blob that belongs to a control request (the environment). */
  async sendBlob(bytes: Uint8Array, ask: (id: string) => Promise<unknown>): Promise<void> {
    const { id, stream } = this.#transfer();
    const answered = ask(id);
    ignore(answered);
    try {
      await stream.write(bytes);
      stream.end();
      await answered;
    } catch (cause) {
      stream.reset("cancelled");
      throw cause;
    }
  }

  #transfer(): { id: string; stream: MuxStream } {
    const id = this.#link.requests.newId();
    return { id, stream: this.#link.bulk().open(PORTS.file.number, id) };
  }

  /** Over when the signal fires, whether somebody reads it by then or not. */
  #transferDown(signal: AbortSignal): { id: string; stream: MuxStream } {
    const { id, stream } = this.#transfer();
    stream.end();
    const leave = () => stream.reset("cancelled");
    signal.addEventListener("abort", leave, { once: true });
    if (signal.aborted) leave();
    return { id, stream };
  }

  async #upload(input: MuxStream, ask: (id: string) => Promise<unknown>): Promise<void> {
    const { id, stream } = this.#transfer();
    const answered = ask(id);
    ignore(answered);
    let bytes = 0;
    try {
      const sending = (async () => {
        for (let chunk = await input.read(); chunk !== null; chunk = await input.read()) {
          await stream.write(chunk);
          bytes += chunk.length;
        }
        stream.end();
      })();
      ignore(sending);
      // A refusal (no space, wrong path) comes while bytes still flow: do not wait for the sender then.
      await Promise.race([answered, sending.then(() => answered)]);
      await input.write(encodeMessagePack({ bytes }));
      input.end();
    } catch (cause) {
      stream.reset("cancelled");
      const error = toldBy(await answerBehind(cause, answered));
      await input.write(encodeMessagePack({ error }));
      input.end();
    }
  }
}

/** A reset stream is a symptom: the guest's own answer, where there is one, has the cause. */
async function answerBehind(cause: unknown, answered: Promise<unknown>): Promise<unknown> {
  if (!(cause instanceof Failure) || cause.kind !== "reset") return cause;
  const told = answered.then(
    () => cause,
    (reason: unknown) => reason,
  );
  try {
    return await within(told, ANSWER_AFTER_RESET_MS);
  } catch {
    return cause;
  }
}

function toldBy(cause: unknown): { kind: string; message: string } {
  return { kind: cause instanceof Failure ? cause.kind : "internal", message: messageOf(cause) };
}

async function pipe(from: MuxStream, to: MuxStream): Promise<void> {
  try {
    for (let chunk = await from.read(); chunk !== null; chunk = await from.read()) await to.write(chunk);
    to.end();
  } catch (cause) {
    from.reset("cancelled");
    to.reset("internal");
    throw cause;
  }
}

function unexpected(verb: string): Failure {
  return new Failure("internal", `Cannot ${verb} file: the guest agent answered with something else`);
}

/** A tree of a gigabyte under emulation takes minutes; the caller's own deadline is shorter where it matters. */
const UPLOAD_TIMEOUT_MS = 3_600_000;
