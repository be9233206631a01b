import { Failure } from "@capsem/base";
import type { MuxStream } from "./types.ts";

/**
 * Reads and drops what the peer still sends, until its end: for a side that has ended and must not reset,
 * because its own last bytes are still under way. Never rejects.
 */
export async function discardRest(stream: MuxStream): Promise<void> {
  try {
    while ((await stream.read()) !== null);
  } catch (thrown) {
    // A reset or a lost lane also ends it; anything else is a bug, such as a second reader.
    if (!(thrown instanceof Failure)) stream.reset("internal");
  }
}
