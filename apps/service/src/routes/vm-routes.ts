import { messageOf } from "@capsem/base";
import type { ActContext } from "../act.ts";
import { type Answer, type Handlers, json } from "../http/handler.ts";
import type { Vm } from "../vm/vm.ts";
import { healthOf, vmInfoOf } from "../vm/vm-info.ts";
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
      const vm = await lifecycle.create(body, query.hold === true ? { hold: context.signal } : {});
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
      return json(OK);
    },
    purge: async ({ body }) => json({ deleted: await purge(parts, body.all === true) }),
  } satisfies Partial<Handlers>;
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
        if (parts.registry.has(vm.id)) await parts.lifecycle.remove(vm);
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

/** Temporary and failed VMs, or all; one whose record cannot be read only with all. One that resists does not keep the others. */
async function purge(parts: RouteParts, isAll: boolean): Promise<string[]> {
  const doomed = parts.registry
    .list()
    .filter((vm) => isAll || !vm.isRetained || (vm.record.state === "failed" && vm.isRecordReadable));
  const removed = await Promise.all(
    doomed.map(async (vm) => {
      try {
        await parts.lifecycle.remove(vm);
        return [vm.id];
      } catch (thrown) {
        parts.log("error", "purge could not delete a VM", { vm_id: vm.id, cause: messageOf(thrown) });
        return [];
      }
    }),
  );
  return removed.flat();
}
