import type { CreateRequest } from "@capsem/api";
import { type ActContext, requesterText } from "../act.ts";
import type { ActDraft, VmFacts } from "../boundary/parts.ts";
import { lifecycleDraft } from "../boundary/vm-draft.ts";
import type { CreatePlan } from "../vm/create-plan.ts";
import type { CreateOptions } from "../vm/lifecycle.ts";
import type { Vm } from "../vm/vm.ts";
import type { RouteParts } from "./parts.ts";

export type CreateParts = Pick<RouteParts, "boundary" | "lifecycle">;

/** Judged before anything is made, by the id that the VM will have. */
export async function createVm(
  parts: CreateParts,
  request: CreateRequest,
  context: ActContext,
  options: CreateOptions = {},
): Promise<Vm> {
  const plan = await parts.lifecycle.plan(request);
  try {
    return await createPlanned(parts, plan, request, context, options);
  } finally {
    plan.release();
  }
}

/** The plan stays the caller's to release. */
export function createPlanned(
  { boundary, lifecycle }: CreateParts,
  plan: CreatePlan,
  request: CreateRequest,
  context: ActContext,
  options: CreateOptions,
): Promise<Vm> {
  const vm = plannedFacts(plan, request.name ?? null);
  const act: ActDraft = {
    ...lifecycleDraft(vm, "create", requesterText(context.requester)),
    isNew: true,
    bound: () => request,
  };
  return boundary.pass(context, act, () => lifecycle.create(request, { ...options, plan }));
}

export function plannedFacts({ id, image }: CreatePlan, name: string | null): VmFacts {
  return { id, name, image };
}
