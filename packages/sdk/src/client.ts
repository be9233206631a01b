import type { CreateRequest, ExecResult, RouteName, RunRequest, ServiceStatus, VmInfo } from "@capsem/api";
import { type Held, hold } from "./hold.ts";
import { START_TIMEOUT_MS } from "./limits.ts";
import { type CallOptions, type Operation, operation } from "./operation.ts";
import type { Transport } from "./transport.ts";
import { createVm, execTimeoutMs, type Vm } from "./vm.ts";

export interface Client {
  status(options?: CallOptions): Promise<ServiceStatus>;
  health(options?: CallOptions): Promise<void>;
  readonly vms: {
    create(request?: CreateRequest, options?: CallOptions): Promise<VmInfo>;
    list(options?: CallOptions): Promise<VmInfo[]>;
    /** Deletes temporary and failed VMs; with `all` retained ones too. Returns their ids. */
    purge(request?: { readonly all?: boolean }, options?: CallOptions): Promise<string[]>;
  };
  /** The VM of an id; nothing is sent. */
  vm(id: string): Vm;
  /** Creates a VM that lives as long as the connection: see `Held`. */
  hold(request?: CreateRequest, options?: CallOptions): Promise<Held>;
  /** One command in a VM of its own, which is destroyed at its end. */
  run(request: RunRequest, options?: CallOptions): Promise<ExecResult>;
  /** Any route of the table by its name. */
  operation<N extends RouteName>(name: N): Operation<N>;
  /** Closes idle connections; running calls end as they would have. */
  close(): void;
}

export function createClient(transport: Transport): Client {
  const starting = (options: CallOptions = {}) => ({ timeoutMs: START_TIMEOUT_MS, ...options });
  return {
    status: (options) => operation(transport, "status")({}, options),
    health: async (options) => {
      await operation(transport, "health")({}, options);
    },
    vms: {
      create: (body = {}, options) => operation(transport, "create")({ body }, starting(options)),
      list: async (options) => (await operation(transport, "list")({}, options)).vms,
      purge: async (body = {}, options) =>
        (await operation(transport, "purge")({ body }, starting(options))).deleted,
    },
    vm: (id) => createVm(transport, id),
    hold: (request = {}, options) => hold(transport, request, options),
    run: (body, options) => {
      const timeoutMs = Math.min(execTimeoutMs(body.timeout_secs) + START_TIMEOUT_MS, 2_147_483_647);
      return operation(transport, "run")({ body }, { timeoutMs, ...options });
    },
    operation: (name) => operation(transport, name),
    close: () => transport.close(),
  };
}
