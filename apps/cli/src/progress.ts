import { PLAIN_PROGRESS_INTERVAL_MS, PROGRESS_INTERVAL_MS } from "./limits.ts";
import type { Output } from "./output.ts";
import type { Powers } from "./powers.ts";

export interface Progress {
  /** What is going on now; shown as often as the place allows. */
  update(text: string): void;
  end(): void;
}

/** One changing line on a terminal, now and then a plain line elsewhere. Short work shows nothing. */
export function startProgress(powers: Powers, output: Output): Progress {
  const { isTerminal } = powers.stderr;
  const intervalMs = isTerminal ? PROGRESS_INTERVAL_MS : PLAIN_PROGRESS_INTERVAL_MS;
  let last = powers.now();
  let width = 0;
  const write = (text: string) => {
    output.error(text).then(undefined, () => undefined);
  };
  return {
    update: (text) => {
      const now = powers.now();
      if (now - last < intervalMs) return;
      last = now;
      if (isTerminal) write(`\r${text.padEnd(width)}`);
      else write(`capsem: ${text}\n`);
      width = Math.max(width, text.length);
    },
    end: () => {
      if (isTerminal && width > 0) write(`\r${" ".repeat(width)}\r`);
      width = 0;
    },
  };
}
