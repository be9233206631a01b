import { within } from "@capsem/base";
import { CapsemError } from "./error.ts";
import type { TransportAnswer } from "./transport.ts";

/** An answer's bytes, ending with `timeout` when none came for `idleMs`. Its connection is closed on every path but its end. */
export async function* withIdleLimit(
  { body, cancel }: Pick<TransportAnswer, "body" | "cancel">,
  idleMs: number,
  doing: string,
  outcome: "none" | "unknown" = "none",
): AsyncGenerator<Uint8Array> {
  const source = body[Symbol.asyncIterator]();
  let finished = false;
  try {
    for (;;) {
      const late = () =>
        new CapsemError("timeout", `Cannot finish ${doing}: no byte came for ${idleMs} ms`, { outcome });
      const next = await within(source.next(), idleMs, late);
      if (next.done === true) {
        finished = true;
        return;
      }
      yield next.value;
    }
  } finally {
    // Not awaited: a source that hangs in next() would hang in return() too, and what it waits for is still open.
    if (!finished) {
      source.return?.().then(undefined, () => undefined);
      cancel();
    }
  }
}
