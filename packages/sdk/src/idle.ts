import { within } from "@capsem/base";
import { CapsemError } from "./error.ts";

/** The same bytes, ending with `timeout` when none came for `idleMs`. The source is closed on every path. */
export async function* withIdleLimit(
  body: AsyncIterable<Uint8Array>,
  idleMs: number,
  doing: string,
): AsyncGenerator<Uint8Array> {
  const source = body[Symbol.asyncIterator]();
  let finished = false;
  try {
    for (;;) {
      const late = () => new CapsemError("timeout", `Cannot finish ${doing}: no byte came for ${idleMs} ms`);
      const next = await within(source.next(), idleMs, late);
      if (next.done === true) {
        finished = true;
        return;
      }
      yield next.value;
    }
  } finally {
    // Not awaited: a source that hangs in next() would hang in return() too.
    if (!finished) source.return?.().then(undefined, () => undefined);
  }
}
