import { EVIDENCE_LIMITS, type SecurityEntry } from "@capsem/api";
import type { LedgerClient } from "./ledger-client.ts";

/** Every decision of a ledger since a moment (null: from the first), the newest first, a page at a time. */
export async function* pastDecisions(
  client: Pick<LedgerClient, "read">,
  ledger: string,
  { sinceMs, signal }: { readonly sinceMs: number | null; readonly signal: AbortSignal },
): AsyncGenerator<SecurityEntry> {
  const asked = {
    ...{ ledger, limit: EVIDENCE_LIMITS.pageRowsMax },
    ...(sinceMs === null ? {} : { since_ms: sinceMs }),
  };
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const request = { ...asked, ...(cursor === undefined ? {} : { cursor }) };
    const page = await client.read("read.decisions", request, signal);
    yield* page.events;
    cursor = page.next;
  }
}
