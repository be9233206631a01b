import { type ExecResult, jobInfo, type RunRequest } from "@capsem/api";
import { assert, newId } from "@capsem/base";
import * as z from "zod";
import type { ActContext } from "../act.ts";
import { type Answer, type BytesAnswer, type Handlers, json } from "../http/handler.ts";
import { pipeDown } from "../job/byte-pipes.ts";
import { execute } from "../job/exec.ts";
import { runStreamSession } from "../job/stream-session.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { useVm } from "../vm/use-vm.ts";
import type { Vm } from "../vm/vm.ts";
import type { RouteParts } from "./parts.ts";

export function jobRoutes(parts: RouteParts) {
  const { registry, powers } = parts;
  const newJobId = () => {
    parts.counts.jobsStarted += 1;
    return newId("job", powers.random);
  };
  const inVm = <T>(id: string, context: ActContext, work: (run: OwnerRun) => Promise<T>) =>
    useVm(registry.get(id), powers.monotonicMs, context.signal, work);
  return {
    exec: async ({ params, body, context }) => {
      const result = await inVm(params.id, context, (run) =>
        execute({ run, job: newJobId(), monotonicMs: powers.monotonicMs }, body, context),
      );
      parts.findings.slow("exec overhead", result.duration_ms - result.agent_ms, params.id);
      return json(result);
    },
    run: async ({ body, context }) => {
      const startedMs = powers.monotonicMs();
      const result = await runOnce(parts, newJobId(), body, context);
      parts.findings.slow("run overhead", powers.monotonicMs() - startedMs - result.agent_ms, null);
      return json(result);
    },
    stream: async ({ params, context, openSocket }): Promise<Answer<"stream">> => {
      await inVm(params.id, context, async (run) => {
        const socket = await openSocket();
        await runStreamSession({ run, socket, newJobId, context, log: parts.log });
        await socket.closed;
      });
      return { kind: "socket" };
    },
    jobs: async ({ params, context }) => {
      const { jobs } = await inVm(params.id, context, (run) => run.call("job.list", {}, context));
      const parsed = z.array(jobInfo).safeParse(jobs);
      assert(parsed.success, "an owner listed jobs in another shape");
      return json({ jobs: parsed.data });
    },
    jobOutput: async ({ params, query, context }): Promise<Answer<"jobOutput">> => {
      const vm = registry.get(params.id);
      const request = { job: params.job, offset: query.offset ?? 0, follow: query.follow ?? false };
      return openDown(parts, vm, context, async (run) => {
        const { result, stream } = await run.open("job.read", request, {
          signal: context.signal,
        });
        return {
          stream,
          headers: {
            "x-capsem-offset": String(result.offset),
            "x-capsem-truncated": String(result.truncated),
          },
        };
      });
    },
    jobSignal: async ({ params, body, context }) => {
      const { signal } = body;
      const order = { job: params.job, signal, tree: signal === 9 };
      await inVm(params.id, context, (run) => run.call("job.signal", order, context));
      return json({ ok: true as const });
    },
  } satisfies Partial<Handlers>;
}

/** A VM for one command: gone on success, failure, time limit and a client that leaves, at whatever step. */
async function runOnce(
  parts: RouteParts,
  job: string,
  request: RunRequest,
  context: ActContext,
): Promise<ExecResult> {
  const { lifecycle, powers, registry } = parts;
  const { cpus, memory_gib, vm_env, ...command } = request;
  let vm: Vm | null = null;
  const remove = async () => {
    if (vm !== null && registry.has(vm.id)) await lifecycle.remove(vm);
  };
  const onAbort = () => void remove().catch(() => undefined);
  context.signal.addEventListener("abort", onAbort, { once: true });
  try {
    const created = await lifecycle.create(
      {
        ...(cpus === undefined ? {} : { cpus }),
        ...(memory_gib === undefined ? {} : { memory_gib }),
        ...(vm_env === undefined ? {} : { env: vm_env }),
      },
      {
        onReserved: (reserved) => {
          vm = reserved;
        },
      },
    );
    return await useVm(created, powers.monotonicMs, context.signal, (run) =>
      execute({ run, job, monotonicMs: powers.monotonicMs }, command, context),
    );
  } finally {
    context.signal.removeEventListener("abort", onAbort);
    await remove();
  }
}

/** A download: errors before its first byte are HTTP errors, and the VM counts as used until its last. */
export async function openDown(
  parts: RouteParts,
  vm: Vm,
  context: ActContext,
  open: (
    run: OwnerRun,
  ) => Promise<{ stream: Parameters<typeof pipeDown>[1]; headers: Record<string, string> }>,
): Promise<BytesAnswer> {
  const { monotonicMs } = parts.powers;
  const opened = await useVm(vm, monotonicMs, context.signal, async (run) => ({ run, ...(await open(run)) }));
  return {
    kind: "bytes",
    headers: opened.headers,
    pump: (write) =>
      useVm(vm, monotonicMs, context.signal, () => pipeDown(opened.run, opened.stream, write)).catch(
        (thrown: unknown) => {
          opened.stream.reset("cancelled");
          throw thrown;
        },
      ),
  };
}
