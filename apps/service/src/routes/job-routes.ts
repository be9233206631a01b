import { type ExecResult, jobInfo, type RunRequest } from "@capsem/api";
import { assert, ignore, newId } from "@capsem/base";
import * as z from "zod";
import type { ActContext } from "../act.ts";
import { commandDraft, completeDraft, endFacts, jobOf } from "../boundary/command-draft.ts";
import { isOutputHeld } from "../boundary/output-rules.ts";
import type { ActDraft, Permit } from "../boundary/parts.ts";
import type { JudgedHandlers } from "../boundary/through-boundary.ts";
import { vmFactsOf } from "../boundary/vm-draft.ts";
import { WithheldOutputs } from "../boundary/withheld-outputs.ts";
import { type Answer, json } from "../http/handler.ts";
import { type Executed, execute } from "../job/exec.ts";
import { recordJobEnd } from "../job/job-end.ts";
import { runStreamSession } from "../job/stream-session.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { useVm } from "../vm/use-vm.ts";
import type { Vm } from "../vm/vm.ts";
import { createPlanned, plannedFacts } from "./create-vm.ts";
import { downAnswer, openDown } from "./download.ts";
import type { RouteParts } from "./parts.ts";

export function jobRoutes(parts: RouteParts) {
  const { registry, powers } = parts;
  const withheld = new WithheldOutputs();
  const inVm = <T>(id: string, context: ActContext, work: (run: OwnerRun) => Promise<T>) =>
    useVm(registry.get(id), powers.monotonicMs, context.signal, work);
  return {
    exec: async ({ params, body, context, act, permit }) => {
      const result = await inVm(params.id, context, (run) =>
        runCommand({ ...parts, withheld }, { run, request: body, context, act, permit }),
      );
      parts.findings.slow("exec overhead", result.duration_ms - result.agent_ms, params.id);
      return json(result);
    },
    run: async ({ body, context }) => {
      const startedMs = powers.monotonicMs();
      const result = await runOnce({ ...parts, withheld }, body, context);
      parts.findings.slow("run overhead", powers.monotonicMs() - startedMs - result.agent_ms, null);
      return json(result);
    },
    stream: async ({ params, context, openSocket }): Promise<Answer<"stream">> => {
      const { boundary, log, policy } = parts;
      const vm = vmFactsOf(registry.get(params.id).record);
      const newJobId = () => {
        parts.counts.jobsStarted += 1;
        return newId("job", powers.random);
      };
      await inVm(params.id, context, async (run) => {
        const socket = await openSocket();
        await runStreamSession({ vm, run, boundary, policy, withheld, socket, newJobId, context, log });
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
      const opened = await openDown(parts, vm, context, async (run) => {
        await withheld.released(run, params.job, context.signal);
        const { result, stream } = await run.open("job.read", request, { signal: context.signal });
        return {
          stream,
          headers: {
            "x-capsem-offset": String(result.offset),
            "x-capsem-truncated": String(result.truncated),
          },
        };
      });
      return downAnswer(parts, vm, context, opened);
    },
    jobSignal: async ({ params, body, context }) => {
      const { signal } = body;
      const order = { job: params.job, signal, tree: signal === 9 };
      await inVm(params.id, context, (run) => run.call("job.signal", order, context));
      return json({ ok: true as const });
    },
  } satisfies Partial<JudgedHandlers>;
}

type CommandParts = RouteParts & { readonly withheld: WithheldOutputs };

interface JudgedCommand {
  readonly run: OwnerRun;
  readonly request: Parameters<typeof execute>[1];
  readonly context: ActContext;
  readonly act: ActDraft;
  readonly permit: Permit;
}

/** Runs what was judged, ends its row, and gives its output only where that was judged too. */
async function runCommand(
  { boundary, counts, policy, powers, withheld }: CommandParts,
  { run, request, context, act, permit }: JudgedCommand,
): Promise<ExecResult> {
  const job = jobOf(act);
  counts.jobsStarted += 1;
  const { decision } = permit;
  const held = isOutputHeld(policy.snapshot()) ? withheld.hold(run, job) : null;
  let executed: Executed;
  try {
    executed = await execute({ run, job, monotonicMs: powers.monotonicMs }, request, context);
  } catch (thrown) {
    const left = { run, job, act, open: null, decision, context, boundary, withheld, held };
    if (held !== null) ignore(recordJobEnd(left));
    throw thrown;
  }
  const { result, end, output } = executed;
  const ended = permit.keep();
  ended.add(endFacts(end, output));
  ended.close("done");
  try {
    await boundary.judgeResult(context, completeDraft(act, end, output), decision);
    held?.free();
  } catch (thrown) {
    if (held === null) withheld.withhold(run, job, thrown);
    else held.withhold(thrown);
    throw thrown;
  }
  return result;
}

/**
 * A VM for one command: gone on success, failure, time limit and a client that leaves, at whatever step. The command is
 * judged before its VM is made; one that is refused leaves no VM behind, and no ledger of one.
 */
async function runOnce(parts: CommandParts, request: RunRequest, context: ActContext): Promise<ExecResult> {
  const { boundary, lifecycle, powers, registry } = parts;
  const { cpus, memory_gib, vm_env, ...command } = request;
  const create = {
    ...(cpus === undefined ? {} : { cpus }),
    ...(memory_gib === undefined ? {} : { memory_gib }),
    ...(vm_env === undefined ? {} : { env: vm_env }),
  };
  const plan = await lifecycle.plan(create);
  let vm: Vm | null = null;
  const onReserved = (reserved: Vm) => {
    vm = reserved;
    // The client may have left before there was a VM to take away.
    if (context.signal.aborted) onAbort();
  };
  const remove = async (why: string) => {
    if (vm !== null && registry.has(vm.id)) await lifecycle.remove(vm, why);
  };
  const onAbort = () => void remove("client_left").catch(() => undefined);
  context.signal.addEventListener("abort", onAbort, { once: true });
  try {
    const draft = commandDraft(plannedFacts(plan, null), newId("job", powers.random), "run", command);
    // Its VM is made for it: what that gets is an argument too.
    const act: ActDraft = { ...draft, isNew: true, bound: () => request };
    return await boundary.pass(context, act, async (permit) => {
      const created = await createPlanned(parts, plan, create, context, { onReserved });
      return useVm(created, powers.monotonicMs, context.signal, (run) =>
        runCommand(parts, { run, request: command, context, act, permit }),
      );
    });
  } finally {
    plan.release();
    context.signal.removeEventListener("abort", onAbort);
    await remove("run_ended");
  }
}
