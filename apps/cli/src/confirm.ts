import type { Context } from "./context.ts";

/** Whether there is somebody who could answer a question. */
export function hasAnswerer({ powers }: Pick<Context, "powers">): boolean {
  return powers.stdin.isTerminal && powers.stderr.isTerminal;
}

/** Asks on stderr; only a yes is one, an end of input is none. */
export async function confirm(
  { powers, output }: Pick<Context, "powers" | "output">,
  question: string,
): Promise<boolean> {
  await output.error(`capsem: ${question} [y/N] `);
  let said = "";
  for await (const bytes of powers.stdin.bytes()) {
    said += Buffer.from(bytes).toString("latin1");
    if (said.includes("\n")) break;
  }
  return /^y(es)?\s*$/i.test(said);
}
