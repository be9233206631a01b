import type { CreateRequest, VmInfo } from "@capsem/api";
import { concat, type Deferred, defer, ignore, textOf, within } from "@capsem/base";
import { asyncDispose } from "./dispose.ts";
import { CapsemError, errorOfObject, isRecord } from "./error.ts";
import { HOLD_LINE_BYTES_MAX, START_TIMEOUT_MS } from "./limits.ts";
import { type CallOptions, open } from "./operation.ts";
import type { Transport, TransportAnswer } from "./transport.ts";
import { createVm, type Vm } from "./vm.ts";

/** The last line of a held create: why the VM is gone, null when somebody asked for it. */
export interface HoldEnd {
  readonly reason: string | null;
}

/** A VM that lives as long as this connection. The service deletes it when the connection is lost, however. */
export interface Held extends AsyncDisposable {
  readonly info: VmInfo;
  readonly vm: Vm;
  /** Settles once: the VM's end, or `unavailable` when the connection was lost before it was said. */
  readonly gone: Promise<HoldEnd>;
  /** Closes the connection at once; the service deletes the VM. */
  drop(): void;
}

export async function hold(
  transport: Transport,
  body: CreateRequest,
  options: CallOptions = {},
): Promise<Held> {
  const timeoutMs = options.timeoutMs ?? START_TIMEOUT_MS;
  const answer = await open(transport, "create", { query: { hold: true }, body }, { ...options, timeoutMs });
  const lines = readLines(answer.body);
  try {
    const first = await within(lines.next(), timeoutMs, () => late(timeoutMs), options.signal);
    if (first.done === true) throw lost();
    const info = parseLine(first.value);
    if (typeof info.id !== "string") throw new CapsemError("internal", "Cannot hold VM: its line has no id");
    const gone: Deferred<HoldEnd> = defer();
    ignore(gone.promise);
    ignore(watch(lines, gone));
    const drop = () => answer.cancel();
    return {
      info: info as unknown as VmInfo,
      vm: createVm(transport, info.id),
      gone: gone.promise,
      drop,
      [asyncDispose]: async () => drop(),
    };
  } catch (thrown) {
    answer.cancel();
    throw asError(thrown, answer);
  }
}

async function watch(lines: AsyncGenerator<string>, gone: Deferred<HoldEnd>): Promise<void> {
  try {
    const line = await lines.next();
    if (line.done === true) throw lost();
    const end = parseLine(line.value);
    gone.resolve({ reason: typeof end.gone === "string" ? end.gone : null });
  } catch (thrown) {
    gone.reject(thrown);
  }
}

async function* readLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  let parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of body) {
    let from = 0;
    for (let at = part.indexOf(10); at >= 0; at = part.indexOf(10, from)) {
      parts.push(part.subarray(from, at));
      const line = textOf(concat(parts));
      parts = [];
      bytes = 0;
      from = at + 1;
      // An empty line is a sign of life.
      if (line.trim() !== "") yield line;
    }
    bytes += part.length - from;
    if (bytes > HOLD_LINE_BYTES_MAX)
      throw new CapsemError("too_large", "Cannot hold VM: a line is over the limit");
    parts.push(part.subarray(from));
  }
}

function parseLine(line: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw new CapsemError("internal", "Cannot hold VM: a line is not JSON", { cause });
  }
  if (!isRecord(value)) throw new CapsemError("internal", "Cannot hold VM: a line is not an object");
  const error = value.error;
  if (isRecord(error) && typeof error.kind === "string" && typeof error.reason === "string")
    throw errorOfObject({ ...error, kind: error.kind, reason: error.reason });
  return value;
}

function asError(thrown: unknown, answer: TransportAnswer): unknown {
  if (thrown instanceof CapsemError) return thrown;
  if (thrown instanceof Error && "kind" in thrown && thrown.kind === "cancelled")
    return new CapsemError("cancelled", "Cannot finish create: cancelled", { cause: thrown });
  return new CapsemError("internal", "Cannot hold VM: unexpected error", {
    cause: thrown,
    status: answer.status,
  });
}

function lost(): CapsemError {
  return new CapsemError("unavailable", "Cannot hold VM: the connection was lost", { outcome: "unknown" });
}

function late(timeoutMs: number): CapsemError {
  return new CapsemError("timeout", `Cannot hold VM: no answer within ${timeoutMs} ms`, {
    outcome: "unknown",
  });
}
