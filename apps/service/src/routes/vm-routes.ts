import { apiFailure, type ErrorKind, toApiFailure } from "@capsem/api";
import type { Failure } from "@capsem/base";
import { type ActContext, requesterText } from "../act.ts";
import type { JudgedHandlers } from "../boundary/through-boundary.ts";
import { lifecycleDraft, vmFactsOf } from "../boundary/vm-draft.ts";
import { type Answer, json } from "../http/handler.ts";
import type { Vm } from "../vm/vm.ts";
import { healthOf, vmInfoOf } from "../vm/vm-info.ts";
import { createVm } from "./create-vm.ts";
import type { RouteParts } from "./parts.ts";

const OK = { ok: true } as const;

export function vmRoutes(parts: RouteParts) {
  const { registry, lifecycle } = parts;
  return {
    list: async () => {
      await Promise.all(registry.list().map(({ id }) => parts.sampleDisk(id)));
      return json({ vms: registry.list().map(vmInfoOf) });
    },
    create: async ({ body, query, context }) => {
      const options = query.hold === true ? { hold: context.signal } : {};
      const vm = await createVm(parts, body, context, options);
      return query.hold === true ? holdAnswer(parts, vm, context) : json(vmInfoOf(vm));
    },
    info: async ({ params }) => {
      const vm = registry.get(params.id);
      await parts.sampleDisk(vm.id);
      return json(vmInfoOf(vm));
    },
    vmStatus: async ({ params }) => {
      const vm = registry.get(params.id);
      const { id, state, reason } = vm.record;
      return json({ id, state, reason, health: healthOf(vm) });
    },
    start: async ({ params }) => {
      const vm = registry.get(params.id);
      await lifecycle.start(vm);
      return json(vmInfoOf(vm));
    },
    stop: async ({ params }) => {
      await lifecycle.stop(registry.get(params.id));
      return json(OK);
    },
    restart: async ({ params }) => {
      const vm = registry.get(params.id);
      await lifecycle.restart(vm);
      return json(vmInfoOf(vm));
    },
    rename: async ({ params, body }) => {
      const vm = registry.get(params.id);
      await lifecycle.rename(vm, body.name);
      return json(vmInfoOf(vm));
    },
    persist: async ({ params, body }) => {
      const vm = registry.get(params.id);
      await lifecycle.persist(vm, body.name);
      return json(vmInfoOf(vm));
    },
    delete: async ({ params }) => {
      await lifecycle.remove(registry.get(params.id));
      await parts.finishLedger(params.id);
      return json(OK);
    },
    purge: async ({ body, context }) => json({ deleted: await purge(parts, body.all === true, context) }),
  } satisfies Partial<JudgedHandlers>;
}

/** One line when it runs, one when it is gone. A client that leaves takes its VM with it. */
function holdAnswer(parts: RouteParts, vm: Vm, context: ActContext): Answer<"create"> {
  return {
    kind: "lines",
    async pump(write) {
      try {
        context.signal.throwIfAborted();
        await write(vmInfoOf(vm));
        const reason = await Promise.race([vm.ended.promise, aborted(context.signal)]);
        await write({ gone: reason });
      } catch (thrown) {
        if (!context.signal.aborted) throw thrown;
        if (parts.registry.has(vm.id)) await parts.lifecycle.remove(vm, "client_left");
      }
    },
  };
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    if (signal.aborted) reject(signal.reason);
    else signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

/**
 * Temporary VMs, or all: what has a name is kept for somebody, also when it failed. Each is an act of its own: one that
 * is refused stays, which the answer says, and one that resists does not keep the others.
 */
async function purge(parts: RouteParts, isAll: boolean, context: ActContext): Promise<string[]> {
  const doomed = parts.registry.list().filter((vm) => isAll || !vm.isRetained);
  const deleted: string[] = [];
  const refused: Refused[] = [];
  await Promise.all(
    doomed.map(async (vm) => {
      const act = lifecycleDraft(vmFactsOf(vm.record), "purge", requesterText(context.requester));
      try {
        await parts.boundary.pass(context, act, () => parts.lifecycle.remove(vm));
        await parts.finishLedger(vm.id);
        deleted.push(vm.id);
      } catch (thrown) {
        const failure = toApiFailure(thrown);
        if (REFUSALS.has(failure.kind)) refused.push({ id: vm.id, failure });
        else parts.log("error", "purge could not delete a VM", { vm_id: vm.id, cause: failure.message });
      }
    }),
  );
  const [first] = refused;
  if (first !== undefined) throw purgeRefused(deleted, refused, first);
  return deleted;
}

interface Refused {
  readonly id: string;
  readonly failure: Failure<ErrorKind>;
}

const REFUSALS: ReadonlySet<ErrorKind> = new Set<ErrorKind>([
  "policy",
  "ledger_away",
  "ledger_full",
  "ledger_broken",
  "invalid_input",
  "quota",
]);

/** Its answer could not say that some stay, and a success would hide it. */
function purgeRefused(deleted: readonly string[], refused: readonly Refused[], { id, failure }: Refused) {
  const more = refused.length === 1 ? "" : `; ${refused.length - 1} more stay`;
  const text = `Cannot purge all: ${deleted.length} are deleted, VM "${id}" stays: ${failure.message}${more}`;
  return apiFailure(failure.kind, text, {
    retryable: failure.retryable,
    facts: { ...failure.facts, deleted, refused: refused.map((each) => each.id) },
  });
}
