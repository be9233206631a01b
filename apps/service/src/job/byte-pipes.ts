import { apiFailure, upEnd } from "@capsem/api";
import { Failure, ignore, within } from "@capsem/base";
import { decodeMessagePack, type MuxStream } from "@capsem/wire";
import { HTTP_LIMITS } from "../limits.ts";
import type { OwnerRun } from "../owner/owner-run.ts";

/** An owner's answer to an upload is a few words. */
const ANSWER_BYTES_MAX = 65_536;

/** Owner → client, opaque, at the client's pace, after what was read of it before. The stream is over on every path. */
export async function pipeDown(
  run: OwnerRun,
  stream: MuxStream,
  write: (chunk: Uint8Array) => Promise<void>,
  peeked: readonly Uint8Array[] = [],
): Promise<void> {
  try {
    for (const chunk of peeked) await write(chunk);
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) await write(chunk);
    stream.end();
  } catch (thrown) {
    stream.reset("cancelled");
    throw await run.streamFailure(thrown);
  }
}

/** The first chunks of a download, with at least so many bytes where it has them; `pipeDown` hands them on. */
export async function peekDown(run: OwnerRun, stream: MuxStream, wanted: number): Promise<Uint8Array[]> {
  const peeked: Uint8Array[] = [];
  try {
    for (let bytes = 0; bytes < wanted; ) {
      const chunk = await stream.read();
      if (chunk === null) break;
      peeked.push(chunk);
      bytes += chunk.length;
    }
    return peeked;
  } catch (thrown) {
    stream.reset("cancelled");
    throw await run.streamFailure(thrown);
  }
}

/** Client → owner, opaque, at the owner's pace; then what the owner made of it. Returns the bytes it took. */
export async function pipeUp(
  run: OwnerRun,
  stream: MuxStream,
  chunks: AsyncIterable<Uint8Array>,
): Promise<number> {
  const answer = readAnswer(stream);
  let isAnswered = false;
  const mark = () => {
    isAnswered = true;
  };
  answer.then(mark, mark);
  try {
    for await (const chunk of withIdleLimit(chunks)) {
      // An early answer is a refusal: the rest is not wanted.
      if (isAnswered) break;
      await stream.write(chunk);
    }
    stream.end();
    return await answer;
  } catch (thrown) {
    stream.reset("cancelled");
    throw await run.streamFailure(thrown);
  }
}

async function readAnswer(stream: MuxStream): Promise<number> {
  const bytes = await readAll(stream);
  const parsed = upEnd.safeParse(decodeMessagePack(bytes));
  if (!parsed.success) throw new Failure("internal", "Cannot read the owner's answer: it has another shape");
  if ("error" in parsed.data) throw new Failure(parsed.data.error.kind, parsed.data.error.message);
  return parsed.data.bytes;
}

async function readAll(stream: MuxStream): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
    length += chunk.length;
    if (length > ANSWER_BYTES_MAX)
      throw new Failure("internal", "Cannot read the owner's answer: it is too long");
    parts.push(chunk);
  }
  return Buffer.concat(parts);
}

/** Passes chunks on; a client that sends nothing for too long, and does not end either, is given up. */
async function* withIdleLimit(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const source = chunks[Symbol.asyncIterator]();
  const late = () => apiFailure("timeout", `Cannot upload: nothing came for ${HTTP_LIMITS.uploadIdleMs} ms`);
  let isAsked = false;
  try {
    for (;;) {
      const next = source.next();
      isAsked = true;
      ignore(next);
      const { done, value } = await within(next, HTTP_LIMITS.uploadIdleMs, late);
      isAsked = false;
      if (done === true) return;
      yield value;
    }
  } finally {
    // Whoever takes no more lets go of the request. One that still owes a chunk does so after it.
    const returned = source.return?.() ?? Promise.resolve();
    if (isAsked) ignore(returned);
    else await returned;
  }
}
