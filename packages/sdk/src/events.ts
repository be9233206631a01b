import type { AskInfo, ServiceEvent, VmInfo } from "@capsem/api";
import { type Deferred, defer, textOf } from "@capsem/base";
import { CapsemError, cancelled, isRecord } from "./error.ts";
import { EVENT_BYTES_MAX } from "./limits.ts";
import { whyEnded } from "./lost.ts";
import { openSocket } from "./open-socket.ts";
import { type CallOptions, operation, pathOf } from "./operation.ts";
import type { Transport } from "./transport.ts";

const EVENTS_PROTOCOL = "capsem.events.v1";
const NORMAL_CLOSURE = 1000;
const TYPES: ReadonlySet<unknown> = new Set<ServiceEvent["type"]>([
  "hello",
  "vm",
  "vm_gone",
  "ask",
  "lagged",
]);

type Lagged = Extract<ServiceEvent, { type: "lagged" }>;
/** What was missed cannot be told any more, so `lagged` brings all VMs, and all asks that wait, as they are now. */
export type ClientEvent =
  | Exclude<ServiceEvent, Lagged>
  | (Lagged & { readonly vms: VmInfo[]; readonly asks: AskInfo[] });

/**
 * Follows the service's events, `hello` first. Ends with `unavailable` when the connection does, and with
 * `cancelled` by the signal; leaving the loop closes it. Connecting again is the caller's.
 */
export async function* followEvents(
  transport: Transport,
  options: CallOptions = {},
): AsyncGenerator<ClientEvent> {
  const explain = (again: CallOptions) => operation(transport, "status")({}, again);
  const socket = await openSocket(transport, pathOf("events"), EVENTS_PROTOCOL, explain, options);
  const { signal } = options;
  // Of this message alone: a promise that lasted as long as the stream would keep every message that was ever told.
  let arrival: Deferred<IteratorResult<Uint8Array>> = defer();
  const onAbort = () => arrival.reject(cancelled("events", signal?.reason));
  signal?.addEventListener("abort", onAbort, { once: true });
  const messages = socket.receive()[Symbol.asyncIterator]();
  try {
    for (;;) {
      arrival = defer();
      if (signal?.aborted) onAbort();
      messages.next().then(arrival.resolve, arrival.reject);
      const next = await arrival.promise;
      if (next.done === true) break;
      const event = parseEvent(next.value);
      if (event === null) continue;
      if (event.type !== "lagged") yield event;
      else yield { ...event, ...(await stateNow(transport, options)) };
    }
    const why = whyEnded(await socket.closed, socket.peer);
    throw new CapsemError("unavailable", `Cannot follow events: ${why}`);
  } finally {
    signal?.removeEventListener("abort", onAbort);
    socket.close(NORMAL_CLOSURE);
  }
}

async function stateNow(transport: Transport, options: CallOptions) {
  const [{ vms }, { asks }] = await Promise.all([
    operation(transport, "list")({}, options),
    operation(transport, "asks")({ query: { state: "pending" } }, options),
  ]);
  return { vms, asks };
}

/** Null for a type that a newer service may have. */
function parseEvent(bytes: Uint8Array): ServiceEvent | null {
  if (bytes.length > EVENT_BYTES_MAX) throw broken("a message is over the limit");
  let value: unknown;
  try {
    value = JSON.parse(textOf(bytes));
  } catch (cause) {
    throw broken("a message is not JSON", cause);
  }
  if (!isRecord(value) || typeof value.type !== "string") throw broken("a message has no type");
  return TYPES.has(value.type) ? (value as ServiceEvent) : null;
}

function broken(what: string, cause?: unknown): CapsemError {
  return new CapsemError("internal", `Cannot follow events: ${what}`, { cause });
}
