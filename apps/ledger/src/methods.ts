import {
  LEDGER_METHODS,
  type LedgerMethod,
  type LedgerParams,
  type LedgerResult,
  type LedgerRole,
  ledgerId,
} from "@capsem/api";
import { Failure } from "@capsem/base";
import type { Handler, RpcContext, StreamHandler } from "@capsem/rpc";
import * as z from "zod";
import type { Ledgers } from "./ledgers.ts";

export interface RoleMethods {
  readonly handlers: Readonly<Record<string, Handler>>;
  readonly streaming: Readonly<Record<string, StreamHandler>>;
}

/** What exists on a channel of a role: nothing of another one. */
export function methodsOf(role: LedgerRole, producer: string, ledgers: Ledgers): RoleMethods {
  switch (role) {
    case "producer":
      return { handlers: producerMethods(producer, ledgers), streaming: {} };
    case "reader":
      return { handlers: readerMethods(ledgers), streaming: {} };
    case "maintainer":
      return { handlers: maintainerMethods(ledgers), streaming: exportMethod(ledgers) };
  }
}

/** The rows are checked one by one as they are hashed: a schema over them would be a second walk. */
const appendParams = z.strictObject({
  ledger: ledgerId,
  generation: z.string(),
  first: z.number().int().positive(),
  rows: z.instanceof(Uint8Array),
  bodies: z.array(z.instanceof(Uint8Array)),
});

function producerMethods(producer: string, ledgers: Ledgers): Record<string, Handler> {
  return {
    ...plain("producer", "ledger.open", (params, { signal }) => ledgers.open(producer, params, signal)),
    "ledger.append": async (raw) => ledgers.append(producer, checked("ledger.append", appendParams, raw)),
    ...plain("producer", "ledger.rows", async (params) => ledgers.rows(producer, params)),
    ...plain("producer", "ledger.sign", async (params) => done(ledgers.sign(params))),
    ...plain("producer", "ledger.close", async ({ ledger }) => done(ledgers.close(producer, ledger))),
  };
}

function readerMethods(ledgers: Ledgers): Record<string, Handler> {
  return {
    ...plain("reader", "read.timeline", async (params) => ledgers.timeline(params)),
    ...plain("reader", "read.history", async (params) => ledgers.history(params)),
    ...plain("reader", "read.decisions", async (params) => ledgers.decisions(params)),
    ...plain("reader", "read.stats", async ({ ledger }) => ledgers.stats(ledger)),
    ...plain("reader", "read.detail", ({ ledger }, { signal }) => ledgers.detail(ledger, signal)),
    ...plain("reader", "read.verify", (params, { signal }) => ledgers.verify(params, signal)),
    ...plain("reader", "read.list", (_, { signal }) => ledgers.list(signal)),
  };
}

function maintainerMethods(ledgers: Ledgers): Record<string, Handler> {
  return {
    ...plain("maintainer", "keep.archive", async ({ ledger }) => ({ name: await ledgers.archive(ledger) })),
    ...plain("maintainer", "keep.remove", async ({ ledger }) => done(ledgers.remove(ledger))),
    ...plain("maintainer", "keep.limit", async (params) => done(ledgers.limit(params.vm_bytes_max))),
  };
}

function exportMethod(ledgers: Ledgers): Record<string, StreamHandler> {
  return {
    "keep.export": async (raw, { signal }) => {
      const { ledger } = checked("keep.export", LEDGER_METHODS.maintainer["keep.export"].params, raw);
      const { run, close } = ledgers.export(ledger);
      // A caller who has gone never runs it.
      signal.addEventListener("abort", close, { once: true });
      return {
        result: {},
        run: async (stream) => {
          try {
            await run(stream);
          } finally {
            signal.removeEventListener("abort", close);
            close();
          }
        },
      };
    },
  };
}

function plain<R extends LedgerRole, M extends LedgerMethod<R> & string>(
  role: R,
  method: M,
  run: (params: LedgerParams<R, M>, context: RpcContext) => Promise<LedgerResult<R, M>>,
): Record<string, Handler> {
  const methods: Readonly<Record<string, { readonly params: z.ZodType }>> = LEDGER_METHODS[role];
  const schema = methods[method]?.params ?? z.never();
  return {
    [method]: (raw, context) => run(checked(method, schema, raw) as LedgerParams<R, M>, context),
  };
}

function checked<T>(method: string, schema: z.ZodType<T>, raw: unknown): T {
  const parsed = schema.safeParse(raw);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const where = issue === undefined ? "" : `${issue.path.join(".")} ${issue.message}`;
  throw new Failure("invalid_input", `Cannot call ${method}: ${where.trim()}`);
}

async function done(work: Promise<unknown>): Promise<Record<string, never>> {
  await work;
  return {};
}
