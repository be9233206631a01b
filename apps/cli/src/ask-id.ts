import type { AskInfo } from "@capsem/api";
import { CapsemError, type Client } from "@capsem/sdk";
import { SHORT_ID_CHARS, shortId } from "./ask-text.ts";
import { usageError } from "./cli-error.ts";

const WHOLE = /^(?:ask_)?([a-z2-7]{16})$/;
const PART = /^(?:ask_)?([a-z2-7]{4,15})$/;

/** The ask that a word begins; those that wait come first. What was typed long ago must not mean another one by chance. */
export async function findAsk(client: Client, word: string): Promise<AskInfo | { readonly id: string }> {
  const [, whole] = WHOLE.exec(word) ?? [];
  if (whole !== undefined) return { id: `ask_${whole}` };
  const [, part] = PART.exec(word) ?? [];
  if (part === undefined)
    throw usageError(
      `Cannot find ask ${JSON.stringify(word)}: give the first ${SHORT_ID_CHARS} characters that capsem asks list shows, at least 4`,
    );
  const asks = (await client.asks.list()).filter(({ id }) => id.startsWith(`ask_${part}`));
  const pending = asks.filter(({ state }) => state === "pending");
  const found = pending.length > 0 ? pending : asks;
  const [first] = found;
  if (first === undefined)
    throw new CapsemError(
      "ask_not_found",
      `Cannot find ask ${JSON.stringify(word)}: none begins so, see capsem asks list --all`,
      { status: 404 },
    );
  if (found.length === 1) return first;
  const named = found.map((ask) => `  ${ask.id}  ${ask.title}`).join("\n");
  throw usageError(`Cannot tell ask ${JSON.stringify(shortId(`ask_${part}`))} from others:\n${named}`);
}
