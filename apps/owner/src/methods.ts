import { OWNER_METHODS, type OwnerMethod, type OwnerParams, type OwnerResult } from "@capsem/api";
import { Failure } from "@capsem/base";
import type { Handler, RpcContext, StreamHandler } from "@capsem/rpc";
import { type MuxStream, writeJobChunks } from "@capsem/wire";
import type { Job } from "./jobs.ts";
import type { Machine } from "./machine.ts";

export interface OwnerLife {
  machine(): Machine;
  claim(params: OwnerParams<"claim">): Promise<OwnerResult<"claim">>;
  stop(forced: boolean): Promise<void>;
}

function parse<M extends OwnerMethod>(method: M, params: unknown): OwnerParams<M> {
  const parsed = OWNER_METHODS[method].params.safeParse(params);
  if (!parsed.success)
    throw new Failure(
      "invalid_input",
      `Cannot call ${method}: ${parsed.error.issues[0]?.message ?? "bad parameters"}`,
    );
  return parsed.data as OwnerParams<M>;
}

function plain<M extends OwnerMethod>(
  method: M,
  run: (params: OwnerParams<M>, context: RpcContext) => Promise<OwnerResult<M>>,
): [M, Handler] {
  return [method, (params, context) => run(parse(method, params), context)];
}

const done = async (work: Promise<unknown>): Promise<Record<string, never>> => {
  await work;
  return {};
};

/** Calls with one answer. */
export function plainMethods(life: OwnerLife): Record<string, Handler> {
  const { jobs, files } = lazily(life);
  return Object.fromEntries<Handler>([
    plain("claim", (params) => life.claim(params)),
    plain("stop", ({ forced }) => done(life.stop(forced))),
    plain("ping", async () => ({ guest_ms: life.machine().health.guestMs })),
    plain("job.start", (params) => done(jobs().start(params))),
    plain("job.wait", ({ job }, { signal }) => jobs().wait(job, signal)),
    plain("job.signal", ({ job, signal, tree }) => done(life.machine().signal(job, signal, tree))),
    plain("job.resize", ({ job, terminal }) => done(life.machine().resize(job, terminal))),
    plain("job.list", async () => ({ jobs: jobs().list().map(describeJob) })),
    plain("traffic.open", (params) => done(life.machine().openTraffic(params.marker, params.generation))),
    plain("file.stat", (params) => files().stat(params)),
    plain("file.list", (params) => files().list(params)),
    plain("file.mkdir", (params) => done(files().mkdir(params))),
    plain("file.rename", (params) => done(files().rename(params))),
    plain("file.remove", (params) => done(files().remove(params))),
  ]);
}

/** Calls whose stream carries bytes after the answer. */
export function streamMethods(life: OwnerLife): Record<string, StreamHandler> {
  const { jobs, files } = lazily(life);
  return {
    "job.read": async (raw, { signal }) => {
      const { job: id, offset, follow } = parse("job.read", raw);
      const job = jobs().get(id);
      const from = Math.max(offset, job.spool.firstOffset);
      return {
        result: { offset: from, truncated: from > offset },
        run: (stream) => sendOutput(job, from, follow, stream, signal),
      };
    },
    "job.write": async (raw) => {
      const { job } = parse("job.write", raw);
      jobs().get(job);
      return { result: {}, run: (stream) => receiveInput(life.machine(), job, stream) };
    },
    "file.read": async (raw, { signal }) => {
      const { size, run } = await files().read(parse("file.read", raw), signal);
      return { result: { size }, run };
    },
    "file.write": async (raw) => {
      const params = parse("file.write", raw);
      return { result: {}, run: (stream) => files().write(params, stream) };
    },
    "tree.read": async (raw, { signal }) => {
      const { run } = await files().treeOut(parse("tree.read", raw), signal);
      return { result: {}, run };
    },
    "tree.write": async (raw) => {
      const params = parse("tree.write", raw);
      return { result: {}, run: (stream) => files().treeIn(params, stream) };
    },
  };
}

function lazily(life: OwnerLife) {
  return { jobs: () => life.machine().jobs, files: () => life.machine().files };
}

const READ_BYTES_MAX = 60_000;

async function sendOutput(
  job: Job,
  from: number,
  follow: OwnerParams<"job.read">["follow"],
  stream: MuxStream,
  signal: AbortSignal,
): Promise<void> {
  for (let offset = from; ; ) {
    const run = job.spool.read(offset, READ_BYTES_MAX);
    if (run !== null) {
      await writeJobChunks(stream, run.kind === 1 ? "stdout" : "stderr", run.bytes);
      offset = run.offset + run.bytes.length;
    } else if (job.spool.removed && offset < job.spool.endOffset) {
      throw new Failure("job_not_found", `Cannot read on: job "${job.id}" was forgotten`);
    } else if (!follow || job.spool.closed || signal.aborted) return;
    else if (follow === "output" && job.spool.isWhole) return;
    else await job.spool.more(signal);
  }
}

async function receiveInput(machine: Machine, job: string, stream: MuxStream): Promise<void> {
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read())
    await machine.jobs.write(job, chunk);
  machine.jobs.closeStdin(job);
}

function describeJob(job: Job) {
  return {
    id: job.id,
    state: job.end === null ? "running" : "done",
    exit_code: job.end?.exit_code ?? null,
    signal: job.end?.signal ?? null,
    timed_out: job.end?.timed_out ?? false,
    out_of_memory: job.end?.out_of_memory ?? null,
    command: [...job.command],
    started_at: job.startedAt,
    ended_at: job.endedAt,
    stdout_bytes: job.received.stdout,
    stderr_bytes: job.received.stderr,
    first_offset: job.spool.firstOffset,
    end_offset: job.spool.endOffset,
    truncated: job.spool.truncated,
  };
}
