import { type ContractParams, type ContractResult, PROXY_SERVICE_METHODS } from "@capsem/api";
import { Failure } from "@capsem/base";
import type { CallOptions, Peer } from "@capsem/rpc";

type Methods = typeof PROXY_SERVICE_METHODS;

/** The service, as a proxy asks it. Its answers are checked: what comes of them decides what runs. */
export class ServiceLink {
  readonly #peer: Peer;

  constructor(peer: Peer) {
    this.#peer = peer;
  }

  async call<M extends keyof Methods & string>(
    method: M,
    params: ContractParams<Methods, M>,
    options: CallOptions,
  ): Promise<ContractResult<Methods, M>> {
    const answer = await this.#peer.call(method, params, options);
    const parsed = PROXY_SERVICE_METHODS[method].result.safeParse(answer);
    if (parsed.success) return parsed.data as ContractResult<Methods, M>;
    throw new Failure("bad_message", `Cannot read the service's answer to ${method}`, {
      cause: parsed.error,
    });
  }
}
