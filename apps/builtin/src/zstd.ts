import { concat, Failure, messageOf } from "@capsem/base";
import { Decompress } from "fzstd";
import { Growth } from "./growth.ts";
import { zstdFrames } from "./zstd-frames.ts";

/** A whole zstd body, decompressed. Takes its time: for a thread. Throws "upstream_failed" and "too_large". */
export function unzstd(body: Uint8Array): Uint8Array {
  const growth = new Growth();
  growth.receive(body.length);
  const parts: Uint8Array[] = [];
  for (const frame of zstdFrames(body)) {
    const decoder = new Decompress((part) => {
      growth.make(part.length);
      parts.push(part);
    });
    try {
      decoder.push(frame, true);
    } catch (thrown) {
      if (thrown instanceof Failure) throw thrown;
      const words = `Cannot decompress the body: ${messageOf(thrown)} (zstd)`;
      throw new Failure("upstream_failed", words, { cause: thrown });
    }
  }
  return concat(parts);
}
