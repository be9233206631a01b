import { STDIN_LOOK_MS } from "./limits.ts";
import type { InputPower } from "./powers.ts";

export type CommandInput = AsyncIterable<Uint8Array>;

/**
 * What a command is given to read; null where there is nothing: at a terminal, and where standard input is at its end at
 * once, as in a script with `</dev/null`. A command with input is another act than one without, and no rule can name
 * what has not come yet. Whoever is silent for a moment may still say something.
 */
export async function commandInput(stdin: InputPower, lookMs = STDIN_LOOK_MS): Promise<CommandInput | null> {
  if (stdin.isTerminal) return null;
  const input = stdin.bytes()[Symbol.asyncIterator]();
  const first = input.next();
  const seen = await Promise.race([first.catch(() => ENDED), silence(lookMs)]);
  if (seen?.done === true) return null;
  return rest(first, input);
}

/** What cannot be read, such as a folder, has nothing to say. */
const ENDED = { done: true, value: undefined } as const;

/** After it one more turn: what was there in time counts, however busy we were. */
function silence(ms: number): Promise<null> {
  return new Promise((resolve) => setTimeout(() => setImmediate(() => setImmediate(resolve, null)), ms));
}

async function* rest(
  first: Promise<IteratorResult<Uint8Array>>,
  input: AsyncIterator<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  for (let next = await first; next.done !== true; next = await input.next()) yield next.value;
}
