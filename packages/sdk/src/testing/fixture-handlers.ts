import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { apiFailure, type ExecRequest, type Finding, type Panic, type RouteName } from "@capsem/api";
import { newId } from "@capsem/base";
import { FILE_HANDLERS } from "./fixture-files.ts";
import { FixtureJob } from "./fixture-job.ts";
import { MCP_HANDLERS } from "./fixture-mcp-handlers.ts";
import type { FixtureCaller } from "./fixture-policy.ts";
import { EVIDENCE_HANDLERS, POLICY_HANDLERS } from "./fixture-policy-handlers.ts";
import { FIXTURE_LIMITS, type FixtureState, type FixtureVm } from "./fixture-state.ts";

export interface Call {
  readonly state: FixtureState;
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  json(): Promise<Record<string, unknown>>;
}

/** Undefined: the handler answered by itself. */
export type Handler = (call: Call) => Promise<unknown> | unknown;

const LOGS: Readonly<Record<string, readonly string[]>> = {
  guest: ["agent is ready", "agent runs a job"],
  owner: ["owner is ready"],
};
const ok = { ok: true };
const NOW = "2025-01-02T03:04:09.000Z";
const PANICS: readonly Panic[] = ["one", "two"].map((message) => ({
  process: "owner",
  pid: 1,
  time: NOW,
  message,
  location: null,
  frames: [],
}));
const FINDINGS: readonly Finding[] = [
  {
    kind: "slow",
    time: NOW,
    vm_id: null,
    title: "create was slow",
    detail: "",
    count: 1,
  },
];

export const HANDLERS: Partial<Record<RouteName, Handler>> = {
  ...FILE_HANDLERS,
  ...POLICY_HANDLERS,
  ...EVIDENCE_HANDLERS,
  ...MCP_HANDLERS,
  health: () => ok,
  status: ({ state }) => ({
    version: "0.1.0",
    pid: process.pid,
    started_at: "2025-01-02T03:04:05.000Z",
    home: state.folder,
    accelerator: { name: "tcg", reason: "no /dev/kvm" },
    image: "sha256:fixture",
    vms: { running: state.vms.size, total: state.vms.size },
    confinement: { is_enforced: false, reason: "a fixture confines nothing" },
    pool: { warm: 2, preparing: 0, target: 2 },
    goldens: { ready: 1, making: 0 },
    policy: {
      preset: "developer",
      digest: state.policy.digest,
      rules: state.policy.inForce.length,
      has_corp: true,
      faults: 0,
    },
    ledger: { state: "ok", reason: null },
    asks: { pending: state.policy.pending.length, watchers: 0 },
    limits: FIXTURE_LIMITS,
  }),
  stats: ({ state }) => ({
    started_at: "2025-01-02T03:04:05.000Z",
    uptime_secs: 60,
    requests: { total: 1, failed: 0, in_flight: 1 },
    routes: [],
    vms: { running: state.vms.size, total: state.vms.size, created: 0, deleted: 0, failed: 0 },
    pool: { claimed: 0, missed: 0 },
    jobs: { running: 0, started: 0 },
    memory: { service_bytes: 1, owners_bytes: 0, hypervisors_bytes: 0 },
  }),
  panics: ({ query }) => ({ panics: PANICS.slice(0, Number(query.get("limit") ?? 20)), truncated: false }),
  triage: ({ query }) => {
    const vmId = query.get("vm_id");
    return { findings: FINDINGS.filter((each) => vmId === null || each.vm_id === vmId), truncated: false };
  },
  hostLogs: ({ params, query }) => {
    const lines = [`${params.source} started`, `${params.source} is ready`];
    return { lines: lines.filter((line) => line.includes(query.get("grep") ?? "")), truncated: false };
  },
  list: ({ state }) => ({ vms: [...state.vms.values()].map((vm) => vm.info) }),
  create: async (call) => {
    const vm = call.state.create(await call.json());
    if (call.query.get("hold") !== "true") return vm.info;
    const { response } = call;
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.write(`${JSON.stringify(vm.info)}\n`);
    vm.onGone = () => response.end(`${JSON.stringify({ gone: null })}\n`);
    response.once("close", () => call.state.delete(vm.info.id));
    return undefined;
  },
  info: (call) => vmOf(call).info,
  vmStatus: (call) => vmOf(call).info,
  start: (call) => change(call, { state: "running" }),
  restart: (call) => change(call, { state: "running" }),
  stop: (call) => {
    const vm = vmOf(call);
    if (vm.info.state !== "running")
      throw apiFailure("wrong_state", `Cannot stop VM "${vm.info.id}": it is ${vm.info.state}`);
    if (vm.info.name === null) call.state.delete(vm.info.id);
    else change(call, { state: "stopped" });
    return ok;
  },
  rename: rename,
  persist: rename,
  delete: (call) => {
    call.state.delete(vmOf(call).info.id);
    return ok;
  },
  purge: async (call) => {
    const { all } = await call.json();
    const gone = [...call.state.vms.values()].filter((vm) => all === true || vm.info.name === null);
    for (const vm of gone) call.state.delete(vm.info.id);
    return { deleted: gone.map((vm) => vm.info.id) };
  },
  exec: async (call) => {
    const body = (await call.json()) as ExecRequest;
    const vm = vmOf(call);
    const start = () => startJob(vm, body, body.stdin !== undefined);
    const left = new AbortController();
    call.response.once("close", () => left.abort());
    const caller = callerOf(call.request, left.signal);
    const job = await call.state.exec(vm, commandText(body), caller, start);
    job.child.stdin?.end(Buffer.from(body.stdin?.data ?? "", body.stdin?.encoding ?? "utf8"));
    call.response.once("close", () => job.kill(9));
    await job.done;
    const stream = (data: Buffer) => ({ encoding: "utf8", data: data.toString("utf8"), truncated: false });
    const times = { duration_ms: 5, agent_ms: 4 };
    return {
      job_id: job.id,
      ...job.end,
      stdout: stream(job.bytes(1)),
      stderr: stream(job.bytes(2)),
      ...times,
    };
  },
  jobs: (call) => ({ jobs: [...vmOf(call).jobs.values()].map((job) => job.info) }),
  jobOutput: async (call) => {
    const job = jobOf(call);
    if (call.query.get("follow") === "true") await job.done;
    for (const chunk of skip(job, Number(call.query.get("offset") ?? 0))) {
      const head = Buffer.alloc(5);
      head[0] = chunk.stream;
      head.writeUInt32BE(chunk.data.length, 1);
      call.response.write(head);
      call.response.write(chunk.data);
    }
    call.response.end();
    return undefined;
  },
  jobSignal: async (call) => {
    jobOf(call).kill(Number((await call.json()).signal));
    return ok;
  },
  logs: (call) => {
    vmOf(call);
    const lines = LOGS[call.query.get("source") ?? "console"] ?? [];
    const matching = lines.filter((line) => line.includes(call.query.get("grep") ?? ""));
    const tail = Number(call.query.get("tail") ?? 1000);
    return { lines: matching.slice(-tail), truncated: matching.length > tail };
  },
};

export type FixtureStart = Omit<ExecRequest, "stdin"> & {
  readonly terminal?: { readonly cols: number; readonly rows: number } | undefined;
};

export function startJob(vm: FixtureVm, request: FixtureStart, stdin: boolean): FixtureJob {
  if (vm.info.state !== "running")
    throw apiFailure("wrong_state", `Cannot work in VM "${vm.info.id}": it is ${vm.info.state}`);
  if (request.argv?.[0] === "no-such-command")
    throw apiFailure("command_not_found", 'Cannot run "no-such-command": it is not in the VM');
  const job = new FixtureJob(
    newId("job", (bytes) => randomBytes(bytes)),
    {
      command: request.command,
      argv: request.argv,
      cwd: request.cwd === undefined ? vm.folder : `${vm.folder}/${request.cwd}`,
      // There is no terminal here: its size is at least told.
      env: { ...vm.env, ...request.env, FIXTURE_SIZE: `${request.terminal?.cols}x${request.terminal?.rows}` },
      timeoutSecs: request.timeout_secs,
      stdin,
    },
  );
  vm.jobs.set(job.id, job);
  return job;
}

export function commandText({ command, argv = [] }: Pick<FixtureStart, "command" | "argv">): string {
  return command ?? argv.join(" ");
}

export function callerOf({ headers }: IncomingMessage, signal: AbortSignal): FixtureCaller {
  const client = headers["x-capsem-client"];
  const [, traceId = null] = String(headers.traceparent ?? "").split("-");
  return {
    requester: "user uid 1000",
    client: typeof client === "string" ? client : null,
    traceId,
    signal,
  };
}

/** The kept output from a byte offset on. */
export function skip(job: FixtureJob, offset: number): { stream: 1 | 2; data: Buffer }[] {
  let left = offset;
  const rest = [];
  for (const chunk of job.chunks) {
    const data = chunk.data.subarray(Math.min(left, chunk.data.length));
    left -= chunk.data.length - data.length;
    if (data.length > 0) rest.push({ stream: chunk.stream, data });
  }
  return rest;
}

export function vmOf(call: Pick<Call, "state" | "params">): FixtureVm {
  return call.state.get(call.params.id ?? "");
}

function jobOf(call: Call): FixtureJob {
  const job = vmOf(call).jobs.get(call.params.job ?? "");
  if (job === undefined) throw apiFailure("job_not_found", "Cannot find job: it does not exist");
  return job;
}

function change(call: Call, part: Partial<FixtureVm["info"]>): FixtureVm["info"] {
  const vm = vmOf(call);
  vm.info = { ...vm.info, ...part };
  call.state.tell({ type: "vm", seq: 0, time: NOW, vm: vm.info });
  return vm.info;
}

async function rename(call: Call): Promise<FixtureVm["info"]> {
  const name = String((await call.json()).name);
  call.state.checkName(name);
  return change(call, { name });
}
