import type { RouteName } from "@capsem/api";
import type { Answer, Handlers, RouteCall } from "../http/handler.ts";
import { BOUNDARY_TABLE, type DraftedRoute, type DraftOf, type DraftParts } from "./boundary-table.ts";
import type { ActDraft, Boundary, Permit } from "./parts.ts";

/** A call whose act was judged and recorded, and may be done. */
export interface JudgedCall<N extends RouteName> extends RouteCall<N> {
  readonly act: ActDraft;
  readonly permit: Permit;
}

/** Handlers as they are written: those of drafted routes are given their permit. */
export type JudgedHandlers = {
  readonly [N in RouteName]: (
    call: N extends DraftedRoute ? JudgedCall<N> : RouteCall<N>,
  ) => Promise<Answer<N>>;
};

/** Handlers as the server calls them: no drafted act is done before it passed the boundary. */
export function throughBoundary(
  parts: DraftParts & { readonly boundary: Boundary },
  handlers: JudgedHandlers,
): Handlers {
  const entries = Object.entries(handlers).map(([name, handler]) => {
    const row = BOUNDARY_TABLE[name as RouteName];
    if (typeof row !== "function") return [name, handler];
    // Both are of the same route, which the types of a loop cannot say.
    return [name, judged(parts, row as DraftOf<RouteName>, handler as (call: unknown) => Promise<unknown>)];
  });
  return Object.fromEntries(entries) as Handlers;
}

function judged(
  parts: DraftParts & { readonly boundary: Boundary },
  draftOf: DraftOf<RouteName>,
  handler: (call: unknown) => Promise<unknown>,
) {
  return async (call: RouteCall<RouteName>) => {
    const act = await draftNow(call, parts, draftOf);
    return parts.boundary.pass(call.context, act, (permit) => handler({ ...call, act, permit }));
  };
}

/**
 * Drafted for the rules that judge it: what one of them reads is looked at only where some rule does, and rules may
 * change while an upload comes in. Between the last look and the judgement nothing is waited for.
 */
async function draftNow(
  call: RouteCall<RouteName>,
  parts: DraftParts,
  draftOf: DraftOf<RouteName>,
): Promise<ActDraft> {
  for (;;) {
    const digest = digestOf(parts.policy);
    const act = await draftOf(call, parts);
    if (digestOf(parts.policy) === digest) return act;
  }
}

/** Where there are no rules to be had, whoever judges says so. */
function digestOf(policy: DraftParts["policy"]): string | null {
  try {
    return policy.snapshot().digest;
  } catch {
    return null;
  }
}
