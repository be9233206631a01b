import type { MuxStream } from "./types.ts";

/** `stream` with `prefix` before what it still holds: for bytes that were read too far. */
export function prefixedStream(stream: MuxStream, prefix: Uint8Array): MuxStream {
  if (prefix.length === 0) return stream;
  let waiting: Uint8Array | undefined = prefix;
  return {
    id: stream.id,
    port: stream.port,
    tag: stream.tag,
    closed: stream.closed,
    read() {
      if (waiting === undefined) return stream.read();
      const chunk = waiting;
      waiting = undefined;
      return Promise.resolve(chunk);
    },
    write: (chunk) => stream.write(chunk),
    lend: (borrower) => stream.lend(borrower),
    takeBack: (credit) => stream.takeBack(credit),
    end: () => stream.end(),
    reset(code) {
      waiting = undefined;
      stream.reset(code);
    },
  };
}
