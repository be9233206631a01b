/**
 * The private contract between the service and the ledger process, over `rpc`. Each channel is a socket pair of its
 * own and has one role: what is not a method of that role does not exist on it (design, "Ledger": role-bound).
 */
import * as z from "zod";
import {
  historyPage,
  ledgerId,
  ledgerRef,
  securityPage,
  timelinePage,
  verifyResult,
  vmStats,
  vmStatsDetail,
} from "./ledger-schema.ts";

/** First line on the ledger's stdin. Descriptor numbers are the ledger's own. */
export const ledgerPlan = z.strictObject({
  /** `ledgers` in the home: the only folder that it may name a path in. */
  folder: z.string(),
  channels: z.array(
    z.strictObject({
      role: z.enum(["producer", "reader", "maintainer"]),
      /** Whose rows come on it. */
      producer: z.string(),
      fd: z.number().int(),
    }),
  ),
  vm_bytes_max: z.number().int().positive(),
  allow_unconfined: z.boolean(),
});
export type LedgerPlan = z.infer<typeof ledgerPlan>;

const head = z.strictObject({ rows: z.number().int().nonnegative(), head: z.string() });
export type LedgerHead = z.infer<typeof head>;
const ok = z.strictObject({});
/**
 * What is signed of a head: the UTF-8 of this text, with Ed25519. `signature` and `public_key` are base64 (the key as
 * SPKI DER), `key_id` is the first 16 hex digits of the SHA-256 of that DER.
 */
export function signedHeadText(ledger: string, { rows, head }: LedgerHead): string {
  return `capsem ledger head 1\n${ledger}\n${rows}\n${head}\n`;
}
/** A text, number, flag as 0 or 1, or null, in the order of the table's columns, behind the table's name. */
const row = z.array(z.union([z.string(), z.number(), z.null()])).min(2);
/**
 * Rows as JSON in UTF-8, which takes a fraction of the time of a message of so many members. Bodies, which may be large,
 * come beside it.
 */
const octets = z.custom<Uint8Array>((value) => value instanceof Uint8Array);
const rows = { rows: octets, bodies: z.array(octets).readonly() };
const filter = {
  ledger: ledgerRef,
  since_ms: z.number().optional(),
  limit: z.number().int(),
  cursor: z.string().optional(),
};

export const LEDGER_METHODS = {
  producer: {
    /**
     * Before the first row of a generation: opens or makes the ledger, compares its end with the checkpoint, and closes
     * what an earlier generation left open. Failures: ledger_broken, ledger_full, disk_full, ledger_failed.
     */
    "ledger.open": {
      params: z.strictObject({
        ledger: ledgerId,
        generation: z.string(),
        checkpoint: head.nullable(),
        /** Every row from the first, not only the end. */
        whole: z.boolean(),
      }),
      result: z.strictObject({ ...head.shape, interrupted: z.number().int(), bytes: z.number().int() }),
    },
    /**
     * One transaction. `first` is the number of its first row in this generation; rows that are there already are
     * skipped, a gap is refused. Answers after the commit. Failures: ledger_full, ledger_gap, disk_full,
     * ledger_failed, bad_row.
     *
     * `bytes` at `vm_bytes_max` means full: from then on it takes only what ends acts and what the life of a VM leaves,
     * from a reserve. ledger_full refuses a whole batch for one row of another kind, so rows that belong together come
     * in one, and a refused batch comes again in smaller ones.
     */
    "ledger.append": {
      params: z.strictObject({
        ledger: ledgerId,
        generation: z.string(),
        first: z.number().int().positive(),
        ...rows,
      }),
      result: z.strictObject({ ...head.shape, bytes: z.number().int() }),
    },
    /**
     * What lies between a head that the producer knows and one that it was told: rows after `after`, up to `until`, in
     * the order of the chain, as many as one answer holds. `hash` is the row's; `row` is its producer, generation,
     * number, table and columns, null where it is the asking producer's own. Whoever signs heads follows them by it.
     */
    "ledger.rows": {
      params: z.strictObject({
        ledger: ledgerId,
        after: z.number().int().nonnegative(),
        until: z.number().int().positive(),
      }),
      result: z.strictObject({ rows: z.array(z.strictObject({ hash: z.string(), row: row.nullable() })) }),
    },
    /**
     * A head that the service signed (`signedHeadText`), kept beside the chain. Answers when every row up to it is on
     * the disk: the service's checkpoint follows, and must not know more than the ledger after a loss of power.
     */
    "ledger.sign": {
      params: z.strictObject({ ledger: ledgerId, ...head.shape, signature: z.string(), key_id: z.string() }),
      result: ok,
    },
    /** No more rows of this generation come: its files are closed. */
    "ledger.close": { params: z.strictObject({ ledger: ledgerId }), result: ok },
  },
  reader: {
    "read.timeline": {
      params: z.strictObject({
        ...filter,
        trace_id: z.string().optional(),
        layers: z.array(z.string()),
        newest: z.boolean(),
      }),
      result: timelinePage,
    },
    "read.history": {
      params: z.strictObject({
        ledger: ledgerRef,
        limit: z.number().int(),
        offset: z.number().int(),
        search: z.string().optional(),
      }),
      result: historyPage,
    },
    "read.decisions": {
      params: z.strictObject({
        ...filter,
        action: z.string().optional(),
        type: z.string().optional(),
        rule_id: z.string().optional(),
      }),
      result: securityPage,
    },
    "read.stats": { params: z.strictObject({ ledger: ledgerRef }), result: vmStats },
    "read.detail": { params: z.strictObject({ ledger: ledgerRef }), result: vmStatsDetail },
    "read.verify": {
      params: z.strictObject({ ledger: ledgerRef, checkpoint: head.nullable(), public_key: z.string() }),
      result: verifyResult,
    },
    "read.list": {
      params: z.strictObject({}),
      result: z.strictObject({
        ledgers: z.array(
          z.strictObject({
            vm_id: ledgerId,
            name: z.string().nullable(),
            rows: z.number().int(),
            bytes: z.number().int(),
            first_ms: z.number().nullable(),
            last_ms: z.number().nullable(),
            archived: z.number().int(),
          }),
        ),
      }),
    },
  },
  maintainer: {
    /** JSON lines down the stream: a head line, then every row in the order of the chain, with its number and hashes. */
    "keep.export": { params: z.strictObject({ ledger: ledgerRef }), result: ok },
    /** Sets a ledger's files aside; the next open makes a new one. Answers the name of the folder that holds them. */
    "keep.archive": {
      params: z.strictObject({ ledger: ledgerId }),
      result: z.strictObject({ name: z.string() }),
    },
    "keep.remove": { params: z.strictObject({ ledger: ledgerId }), result: ok },
    "keep.limit": { params: z.strictObject({ vm_bytes_max: z.number().int().positive() }), result: ok },
  },
} as const;
export type LedgerRole = keyof typeof LEDGER_METHODS;
export type LedgerMethod<R extends LedgerRole> = keyof (typeof LEDGER_METHODS)[R];
type Shape<
  R extends LedgerRole,
  M extends LedgerMethod<R>,
  K extends "params" | "result",
> = (typeof LEDGER_METHODS)[R][M] extends { readonly [P in K]: infer S extends z.ZodType }
  ? z.infer<S>
  : never;
export type LedgerParams<R extends LedgerRole, M extends LedgerMethod<R>> = Shape<R, M, "params">;
export type LedgerResult<R extends LedgerRole, M extends LedgerMethod<R>> = Shape<R, M, "result">;

/** What the ledger tells the service, on each channel once. */
export const LEDGER_SERVICE_METHODS = {
  "ledger.ready": {
    params: z.strictObject({ unconfined: z.array(z.string()), notes: z.array(z.string()) }),
    result: ok,
  },
} as const;
