import type {
  CreateRequest,
  ExecResult,
  HostLogSource,
  RouteName,
  RunRequest,
  ServiceStats,
  ServiceStatus,
  VmInfo,
} from "@capsem/api";
import { type CreatedVm, createdVm } from "./created-vm.ts";
import { asyncDispose } from "./dispose.ts";
import { type ClientEvent, followEvents } from "./events.ts";
import { type GatewayOptions, gatewayTransport } from "./gateway.ts";
import { type Held, hold } from "./hold.ts";
import { type Ledgers, ledgersOf } from "./ledgers.ts";
import { NO_TIMEOUT_MS, START_TIMEOUT_MS } from "./limits.ts";
import { type Mcp, mcpOf } from "./mcp.ts";
import {
  type CallOptions,
  type Operation,
  type OperationInput,
  type OperationResult,
  operation,
} from "./operation.ts";
import {
  type Asks,
  asksOf,
  type Corp,
  type Credentials,
  corpOf,
  credentialsOf,
  type Rules,
  rulesOf,
  type Settings,
  settingsOf,
} from "./policy.ts";
import { isTransport, type Transport } from "./transport.ts";
import { createVm, execTimeoutMs, type Vm } from "./vm.ts";

type Query<N extends RouteName> = NonNullable<OperationInput<N> extends { query?: infer Q } ? Q : never>;

export interface Client extends AsyncDisposable {
  status(options?: CallOptions): Promise<ServiceStatus>;
  health(options?: CallOptions): Promise<void>;
  stats(options?: CallOptions): Promise<ServiceStats>;
  /** Changes of VMs, and asks, as they happen; `hello` with all of them first: see `ClientEvent`. */
  events(options?: CallOptions): AsyncGenerator<ClientEvent>;
  /** Abnormal ends of Capsem's own processes, the newest first. */
  panics(query?: Query<"panics">, options?: CallOptions): Promise<OperationResult<"panics">>;
  /** What went wrong lately, the worst first. */
  triage(query?: Query<"triage">, options?: CallOptions): Promise<OperationResult<"triage">>;
  hostLogs(
    source: HostLogSource,
    query?: Query<"hostLogs">,
    options?: CallOptions,
  ): Promise<OperationResult<"hostLogs">>;
  readonly vms: {
    create(request?: CreateRequest, options?: CallOptions): Promise<VmInfo>;
    list(options?: CallOptions): Promise<VmInfo[]>;
    /** Deletes temporary VMs, also those that failed; with `all` retained ones too. Returns their ids. */
    purge(request?: { readonly all?: boolean }, options?: CallOptions): Promise<string[]>;
  };
  /** What may be done, and how one finds out. */
  readonly rules: Rules;
  readonly settings: Settings;
  readonly corp: Corp;
  /** Calls that a rule holds until a person has answered. */
  readonly asks: Asks;
  readonly credentials: Credentials;
  /** Tool servers, their tools, and calls of them. */
  readonly mcp: Mcp;
  /** What was done: the record behind `vm.timeline`, also of VMs that are gone. */
  readonly ledgers: Ledgers;
  /** The VM of an id; nothing is sent. */
  vm(id: string): Vm;
  /** Creates a VM that outlives the connection; with `await using` it is deleted at the end of the block. */
  create(request?: CreateRequest, options?: CallOptions): Promise<CreatedVm>;
  /** Creates a VM that lives as long as the connection: see `Held`. */
  hold(request?: CreateRequest, options?: CallOptions): Promise<Held>;
  /** One command in a VM of its own, which is destroyed at its end. */
  run(request: string | RunRequest, options?: CallOptions): Promise<ExecResult>;
  /** Any route of the table by its name. */
  operation<N extends RouteName>(name: N): Operation<N>;
  /** Closes idle connections; running calls end as they would have. */
  close(): void;
}

/** A client of a gateway, or over a transport of one's own. */
export function createClient(target: GatewayOptions | Transport): Client {
  const transport = isTransport(target) ? target : gatewayTransport(target);
  const starting = (options: CallOptions = {}) => ({ timeoutMs: START_TIMEOUT_MS, ...options });
  const create = (body: CreateRequest = {}, options?: CallOptions) =>
    operation(transport, "create")({ body }, starting(options));
  return {
    status: (options) => operation(transport, "status")({}, options),
    health: async (options) => {
      await operation(transport, "health")({}, options);
    },
    stats: (options) => operation(transport, "stats")({}, options),
    events: (options) => followEvents(transport, options),
    panics: (query = {}, options) => operation(transport, "panics")({ query }, options),
    triage: (query = {}, options) => operation(transport, "triage")({ query }, options),
    hostLogs: (source, query = {}, options) =>
      operation(transport, "hostLogs")({ params: { source }, query }, options),
    vms: {
      create,
      list: async (options) => (await operation(transport, "list")({}, options)).vms,
      purge: async (body = {}, options) =>
        (await operation(transport, "purge")({ body }, starting(options))).deleted,
    },
    rules: rulesOf(transport),
    settings: settingsOf(transport),
    corp: corpOf(transport),
    asks: asksOf(transport),
    credentials: credentialsOf(transport),
    mcp: mcpOf(transport),
    ledgers: ledgersOf(transport),
    vm: (id) => createVm(transport, id),
    create: async (request, options) => createdVm(transport, await create(request, options)),
    hold: (request = {}, options) => hold(transport, request, options),
    run: (request, options) => {
      const body = typeof request === "string" ? { command: request } : request;
      const timeoutMs = Math.min(execTimeoutMs(body.timeout_secs) + START_TIMEOUT_MS, NO_TIMEOUT_MS);
      return operation(transport, "run")({ body }, { timeoutMs, ...options });
    },
    operation: (name) => operation(transport, name),
    close: () => transport.close(),
    [asyncDispose]: async () => transport.close(),
  };
}
