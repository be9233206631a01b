import { Failure } from "@capsem/base";
import { EXEC_LIMITS } from "../limits.ts";

/** A piece of stdout (1) or stderr (2): a chunk of the owner's may come in several. */
export interface OutputPiece {
  readonly kind: 1 | 2;
  readonly bytes: Uint8Array;
}

const HEADER_BYTES = 5;

/**
 * Splits typed chunks `[u8 1|2][u32 BE length][bytes]` into pieces as they come, without keeping any byte of
 * them. Throws Failure("protocol_error") for another kind or a length above the limit.
 */
export function createChunkReader(): (bytes: Uint8Array) => OutputPiece[] {
  const header = new Uint8Array(HEADER_BYTES);
  let headerLength = 0;
  let kind: 1 | 2 = 1;
  let left = 0;

  return (bytes) => {
    const pieces: OutputPiece[] = [];
    let at = 0;
    while (at < bytes.length) {
      if (left > 0) {
        const taken = Math.min(left, bytes.length - at);
        pieces.push({ kind, bytes: bytes.subarray(at, at + taken) });
        at += taken;
        left -= taken;
        continue;
      }
      const taken = Math.min(HEADER_BYTES - headerLength, bytes.length - at);
      header.set(bytes.subarray(at, at + taken), headerLength);
      at += taken;
      headerLength += taken;
      if (headerLength < HEADER_BYTES) break;
      headerLength = 0;
      kind = kindOf(header[0]);
      left = new DataView(header.buffer).getUint32(1);
      if (left > EXEC_LIMITS.chunkBytesMax) throw badChunk(`a chunk of ${left} bytes`);
    }
    return pieces;
  };
}

function kindOf(byte: number | undefined): 1 | 2 {
  if (byte !== 1 && byte !== 2) throw badChunk(`a chunk of kind ${byte}`);
  return byte;
}

function badChunk(what: string): Failure {
  return new Failure("protocol_error", `Cannot read job output: the owner sent ${what}`);
}
