import { since as sinceSchema } from "@capsem/api";
import type { Args } from "./args.ts";
import { usageError } from "./cli-error.ts";

export function sinceText(args: Args): string | undefined {
  const since = args.text("since");
  if (since !== undefined && !sinceSchema.safeParse(since).success) {
    throw usageError(
      `Cannot use --since ${JSON.stringify(since)}: a span such as 30s, 10m, 2h or 7d, or an ISO time with its zone`,
    );
  }
  return since;
}

/** The query of `--since` and `--limit`. */
export function sinceOf(args: Args, limitMax = 100): { since?: string; limit?: number } {
  const since = sinceText(args);
  const limit = args.number("limit", 1, limitMax, 1);
  return { ...(since === undefined ? {} : { since }), ...(limit === undefined ? {} : { limit }) };
}
