import type { ExecRequest, ExecResult, JobInfo, VmInfo } from "@capsem/api";
import { type VmEvidence, vmEvidence } from "./evidence.ts";
import { type VmFiles, vmFiles } from "./files.ts";
import { type VmFs, vmFs } from "./fs.ts";
import { Job, type JobChunk, type StreamRequest } from "./job.ts";
import { decodeJobOutput } from "./job-output.ts";
import { JOB_MARGIN_MS, NO_TIMEOUT_MS, START_TIMEOUT_MS } from "./limits.ts";
import { isLost, lostExec } from "./lost.ts";
import { openSocket } from "./open-socket.ts";
import {
  type CallOptions,
  type OperationInput,
  type OperationResult,
  operation,
  pathOf,
} from "./operation.ts";
import type { Transport } from "./transport.ts";
import { type VmTrees, vmTrees } from "./trees.ts";

const STREAM_PROTOCOL = "capsem.stream.v1";

/** One VM by its id. Making it sends nothing. */
export interface Vm extends VmEvidence {
  readonly id: string;
  /** Files as node:fs/promises has them. */
  readonly fs: VmFs;
  /** Files as the service has them: windows, pages, streams with a size. */
  readonly files: VmFiles;
  readonly trees: VmTrees;
  info(options?: CallOptions): Promise<VmInfo>;
  status(options?: CallOptions): Promise<OperationResult<"vmStatus">>;
  start(options?: CallOptions): Promise<VmInfo>;
  stop(options?: CallOptions): Promise<void>;
  restart(options?: CallOptions): Promise<VmInfo>;
  rename(name: string, options?: CallOptions): Promise<VmInfo>;
  persist(name: string, options?: CallOptions): Promise<VmInfo>;
  delete(options?: CallOptions): Promise<void>;
  /** Runs to the end; an abort kills the job. Without `timeout_secs` it waits without limit. */
  exec(request: string | ExecRequest, options?: CallOptions): Promise<ExecResult>;
  /** Starts a job and returns at once; an abort kills it. */
  stream(request: string | StreamRequest, options?: CallOptions): Job;
  /** Follows a job that was started before, from a byte offset of its output; 0 replays all that is kept. */
  attach(jobId: string, offset?: number, options?: CallOptions): Job;
  jobs(options?: CallOptions): Promise<JobInfo[]>;
  jobOutput(jobId: string, options?: CallOptions & JobOutputOptions): AsyncIterable<JobChunk>;
  signalJob(jobId: string, signal: number, options?: CallOptions): Promise<void>;
  logs(query?: OperationInput<"logs">["query"], options?: CallOptions): Promise<OperationResult<"logs">>;
}

export interface JobOutputOptions {
  readonly offset?: number;
  /** Waits for more until the job is done. */
  readonly follow?: boolean;
}

export function createVm(transport: Transport, id: string): Vm {
  const params = { id };
  const starting = (options: CallOptions = {}) => ({ timeoutMs: START_TIMEOUT_MS, ...options });
  const status = (options?: CallOptions) => operation(transport, "vmStatus")({ params }, options);
  const open = (options: CallOptions) =>
    openSocket(transport, pathOf("stream", params), STREAM_PROTOCOL, status, options);
  const kick = async (job: string, signal: number) => {
    await operation(transport, "jobSignal")({ params: { id, job }, body: { signal } });
  };
  const files = vmFiles(transport, id);
  return {
    ...vmEvidence(transport, id),
    id,
    fs: vmFs(files),
    files,
    trees: vmTrees(transport, id),
    info: (options) => operation(transport, "info")({ params }, options),
    status,
    start: (options) => operation(transport, "start")({ params }, starting(options)),
    stop: async (options) => {
      await operation(transport, "stop")({ params }, options);
    },
    restart: (options) => operation(transport, "restart")({ params }, starting(options)),
    rename: (name, options) => operation(transport, "rename")({ params, body: { name } }, options),
    persist: (name, options) => operation(transport, "persist")({ params, body: { name } }, options),
    delete: async (options) => {
      await operation(transport, "delete")({ params }, options);
    },
    exec: async (request, options) => {
      const body = commandOf(request);
      const timeoutMs = execTimeoutMs(body.timeout_secs);
      try {
        return await operation(transport, "exec")({ params, body }, { timeoutMs, ...options });
      } catch (thrown) {
        throw isLost(thrown) ? lostExec(thrown) : thrown;
      }
    },
    stream: (asked, options = {}) => {
      const { kind, ...request } = commandOf<StreamRequest>(asked);
      return new Job(() => open(options), { ...request, type: "start", kind: kind ?? "exec" }, kick, options);
    },
    attach: (jobId, offset = 0, options = {}) =>
      new Job(() => open(options), { type: "attach", job_id: jobId, offset }, kick, options),
    jobs: async (options) => (await operation(transport, "jobs")({ params }, options)).jobs,
    jobOutput: async function* (job, { offset, follow, ...options } = {}) {
      const query = { offset, follow };
      const answer = await operation(transport, "jobOutput")({ params: { id, job }, query }, options);
      yield* decodeJobOutput(answer.body);
    },
    signalJob: async (job, signal, options) => {
      await operation(transport, "jobSignal")({ params: { id, job }, body: { signal } }, options);
    },
    logs: (query, options) =>
      operation(transport, "logs")(query === undefined ? { params } : { params, query }, options),
  };
}

function commandOf<R extends { command?: string | undefined }>(request: string | R): R {
  return (typeof request === "string" ? { command: request } : request) as R;
}

export function execTimeoutMs(timeoutSecs: number | undefined): number {
  return timeoutSecs === undefined ? NO_TIMEOUT_MS : timeoutSecs * 1000 + JOB_MARGIN_MS;
}
