import type { LedgerInfo, VerifyResult } from "@capsem/api";
import { concat, textOf } from "@capsem/base";
import { CapsemError, errorOfObject, isRecord } from "./error.ts";
import { withIdleLimit } from "./idle.ts";
import { EXPORT_LINE_BYTES_MAX, LEDGER_TIMEOUT_MS, TRANSFER_IDLE_MS } from "./limits.ts";
import { type CallOptions, type OperationResult, operation } from "./operation.ts";
import type { Transport } from "./transport.ts";

/** One line of an export (ledger format, "Export"): the head, or a row with its table, number and hashes. */
export type LedgerLine = Readonly<Record<string, unknown>>;

/** A ledger as JSON lines. Iterate it for the lines as objects, or take its bytes as they are; each asks for it anew. */
export interface LedgerExport extends AsyncIterable<LedgerLine> {
  bytes(): AsyncGenerator<Uint8Array>;
}

/** What was recorded, of VMs that are there and of those that are gone; `host` is the machine's own. */
export interface Ledgers {
  list(options?: CallOptions): Promise<LedgerInfo[]>;
  /** Walks every row; a ledger that is not whole is an answer, not an error. */
  verify(vmId: string, options?: CallOptions): Promise<VerifyResult>;
  /** Sets a broken one aside, so that its VM starts with a new one. */
  archive(vmId: string, options?: CallOptions): Promise<OperationResult<"ledgerArchive">>;
  /** Nothing is sent before it is read. */
  export(vmId: string, options?: CallOptions): LedgerExport;
}

export function ledgersOf(transport: Transport): Ledgers {
  const long = (options: CallOptions = {}) => ({ timeoutMs: LEDGER_TIMEOUT_MS, ...options });
  return {
    list: async (options) => (await operation(transport, "ledgers")({}, options)).ledgers,
    verify: (vmId, options) =>
      operation(transport, "ledgerVerify")({ params: { vm_id: vmId } }, long(options)),
    archive: (vmId, options) =>
      operation(transport, "ledgerArchive")({ params: { vm_id: vmId } }, long(options)),
    export: (vmId, options) => {
      async function* bytes(): AsyncGenerator<Uint8Array> {
        const answer = await operation(transport, "ledgerExport")({ params: { vm_id: vmId } }, long(options));
        yield* withIdleLimit(answer, TRANSFER_IDLE_MS, "ledger export");
      }
      return { bytes, [Symbol.asyncIterator]: () => parsedLines(bytes()) };
    },
  };
}

async function* parsedLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<LedgerLine> {
  let parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of body) {
    let from = 0;
    for (let at = part.indexOf(10); at >= 0; at = part.indexOf(10, from)) {
      parts.push(part.subarray(from, at));
      yield parseLine(textOf(concat(parts)));
      parts = [];
      bytes = 0;
      from = at + 1;
    }
    bytes += part.length - from;
    if (bytes > EXPORT_LINE_BYTES_MAX) throw broken("a line is over the limit");
    if (from < part.length) parts.push(part.subarray(from));
  }
  if (bytes > 0) throw broken("it ends inside a line");
}

/** A line with an error and no table is the service's: it could not go on. */
function parseLine(line: string): LedgerLine {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw broken("a line is not JSON", cause);
  }
  if (!isRecord(value)) throw broken("a line is not an object");
  const { error } = value;
  if (!("table" in value) && isRecord(error) && typeof error.kind === "string") {
    if (typeof error.reason === "string")
      throw errorOfObject({ ...error, kind: error.kind, reason: error.reason });
  }
  return value;
}

function broken(what: string, cause?: unknown): CapsemError {
  return new CapsemError("internal", `Cannot read ledger: ${what}`, { cause });
}
