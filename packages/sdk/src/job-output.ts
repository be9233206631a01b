import { readU32 } from "@capsem/base";
import { CapsemError } from "./error.ts";
import type { JobChunk } from "./job.ts";

const HEAD_BYTES = 5;

/** Typed chunks `[u8 1|2][u32 BE length][bytes]` as pieces: a long chunk is passed on in parts as it arrives. */
export async function* decodeJobOutput(body: AsyncIterable<Uint8Array>): AsyncGenerator<JobChunk> {
  const head = new Uint8Array(HEAD_BYTES);
  let headBytes = 0;
  let left = 0;
  for await (const part of body) {
    let at = 0;
    while (at < part.length) {
      if (left > 0) {
        const data = part.subarray(at, at + left);
        at += data.length;
        left -= data.length;
        yield { stream: head[0] === 1 ? "stdout" : "stderr", data };
        continue;
      }
      head[headBytes++] = part[at++] ?? 0;
      if (headBytes < HEAD_BYTES) continue;
      headBytes = 0;
      left = readU32(head, 1);
      if (head[0] !== 1 && head[0] !== 2) throw broken(`a chunk has type ${head[0]}`);
    }
  }
  if (left > 0 || headBytes > 0) throw broken("it ends inside a chunk");
}

function broken(what: string): CapsemError {
  return new CapsemError("internal", `Cannot read job output: ${what}`);
}
