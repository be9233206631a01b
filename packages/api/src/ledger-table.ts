/**
 * The tables of a ledger (design, "Ledger"): the one source of their columns for the ledger that stores them, the
 * producers that fill them, and docs/ledger-format.md. A column is added at the end of its table, with a new version.
 */
export const LEDGER_VERSION = 3;

/** `json` is canonical JSON text, `flag` 0 or 1, `time` milliseconds since 1970. A trailing `?` may be null. */
export type ColumnKind = "text" | "int" | "real" | "json" | "flag" | "time";
export type ColumnType = ColumnKind | `${ColumnKind}?`;

export interface LedgerTableRow {
  /** The version that brought it, where that is not the first: an older ledger gets it when it is next written. */
  readonly since?: number;
  /** Columns that came later than their table, with the version that brought them: its last ones, which may be null. */
  readonly later?: Readonly<Record<string, number>>;
  readonly doc: string;
  readonly columns: Readonly<Record<string, ColumnType>>;
}

/** How an act ended. `asked`: not done, a person is asked first; `interrupted`: nobody lived to say, the ledger does. */
export const OUTCOMES = [
  "done",
  "failed",
  "blocked",
  "denied",
  "asked",
  "expired",
  "cancelled",
  "interrupted",
] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** Which event, when, and who asked: first in each table of events. */
const EVENT = {
  event_id: "text",
  time_ms: "time",
  trace_id: "text?",
  turn_id: "text?",
  /** `user uid 1000`, `gateway`, `service` where nobody asked. */
  requester: "text",
  /** What the client calls itself, as it said. */
  client: "text?",
  /** The first 8 hex digits of the token's SHA-256. */
  token_id: "text?",
} as const satisfies Readonly<Record<string, ColumnType>>;

/** What was decided, and how the act ended: last in each table of acts. */
const END = {
  decision: "text",
  rule_id: "text",
  reason: "text",
  outcome: "text",
  error: "text?",
  duration_ms: "real?",
} as const satisfies Readonly<Record<string, ColumnType>>;

export const LEDGER_TABLES = {
  security_decision_events: {
    doc: "every decision, before its act: the intent",
    later: { event: 3 },
    columns: {
      ...EVENT,
      type: "text",
      action: "text",
      rule_id: "text",
      reason: "text",
      detection: "text",
      policy_digest: "text",
      matched: "json",
      /** Of the stored event. */
      event_hash: "text",
      /** The stored event is not all that was judged: a secret in it was replaced. */
      is_redacted: "flag",
      /** The stored event; null: it is large, and in event_body_blobs. */
      event: "text?",
    },
  },
  security_rule_events: {
    doc: "every rule that matched, as it was",
    columns: {
      event_id: "text",
      time_ms: "time",
      rule_id: "text",
      action: "text",
      priority: "int",
      detection: "text",
      has_won: "flag",
      fault: "text?",
      rule: "text",
      event_hash: "text",
    },
  },
  security_ask_events: {
    doc: "every state of an ask",
    columns: {
      ...EVENT,
      ask_id: "text",
      state: "text",
      rule_id: "text",
      digest: "text",
      scope: "text?",
      resolver: "text?",
      note: "text?",
      deadline_ms: "time",
    },
  },
  exec_events: {
    doc: "a job and how it ended",
    columns: {
      ...EVENT,
      job_id: "text?",
      kind: "text",
      command: "text",
      user: "text?",
      cwd: "text?",
      env_names: "json",
      exit_code: "int?",
      signal: "int?",
      timed_out: "flag?",
      out_of_memory: "flag?",
      stdout_bytes: "int?",
      stderr_bytes: "int?",
      stdout_preview: "text?",
      stderr_preview: "text?",
      ...END,
    },
  },
  fs_events: {
    doc: "a file or tree that came in, went out, was made, moved or removed at the service",
    columns: {
      ...EVENT,
      act: "text",
      path: "text",
      to_path: "text?",
      is_tree: "flag",
      bytes: "int?",
      sha256: "text?",
      ...END,
    },
  },
  lifecycle_events: {
    doc: "what became of the VM, asked for or not",
    columns: { ...EVENT, action: "text", vm_name: "text?", image: "text?", detail: "text?", ...END },
  },
  policy_mutations: {
    doc: "a change of settings, rules, corporate policy or credentials",
    columns: {
      ...EVENT,
      key: "text",
      source: "text",
      before: "text?",
      after: "text?",
      digest_before: "text",
      digest_after: "text?",
      ...END,
    },
  },
  event_body_blobs: {
    doc: "stored events and bodies, once for each content",
    columns: {
      hash: "text",
      kind: "text",
      original_bytes: "int",
      is_truncated: "flag",
      body: "text",
    },
  },
  tool_calls: {
    since: 2,
    doc: "a call of a tool and how it ended, whoever made it",
    columns: {
      ...EVENT,
      call_id: "text",
      /** `mcp` of an external server, `builtin` of ours. */
      origin: "text",
      /** `framed` and `http` from inside the VM, `direct` from the host. */
      transport: "text",
      server_name: "text",
      tool_name: "text",
      method: "text",
      request_id: "text?",
      /** As the guest claims it. */
      process_name: "text?",
      arguments_preview: "text?",
      response_preview: "text?",
      /** Of the whole payload in event_body_blobs, where the stored event could not hold it. */
      request_hash: "text?",
      response_hash: "text?",
      bytes_sent: "int?",
      bytes_received: "int?",
      label_in: "json",
      label_out: "json?",
      is_pinned: "flag",
      capability_token: "text?",
      object_handle: "text?",
      credential_ref: "text?",
      ...END,
    },
  },
  net_events: {
    since: 2,
    doc: "a request or connection that left, or was refused",
    columns: {
      ...EVENT,
      /** `http.request` of a builtin tool, `connection` to a tool server, `capsem.internal.reserved`. */
      kind: "text",
      process_name: "text?",
      server_name: "text?",
      scheme: "text?",
      host: "text",
      port: "int?",
      method: "text?",
      path: "text?",
      addresses: "json",
      status: "int?",
      bytes_sent: "int?",
      bytes_received: "int?",
      credential_ref: "text?",
      ...END,
    },
  },
} as const satisfies Readonly<Record<string, LedgerTableRow>>;

export type LedgerTable = keyof typeof LEDGER_TABLES;
export const LEDGER_TABLE_NAMES = Object.keys(LEDGER_TABLES) as readonly LedgerTable[];

type ValueOf<C> = C extends `${infer K}?`
  ? ValueOf<K> | null
  : C extends "text" | "json"
    ? string
    : C extends "flag"
      ? boolean
      : number;

/** One row, by column name. */
export type LedgerRow<T extends LedgerTable> = {
  readonly [C in keyof (typeof LEDGER_TABLES)[T]["columns"]]: ValueOf<
    (typeof LEDGER_TABLES)[T]["columns"][C]
  >;
};

/** The table that a decision's act ends in. A decision of another type is complete by itself. */
export const ENDS_IN: Readonly<Record<string, LedgerTable>> = {
  "process.exec": "exec_events",
  "file.import": "fs_events",
  "file.export": "fs_events",
  "file.event": "fs_events",
  "vm.lifecycle": "lifecycle_events",
  "settings.change": "policy_mutations",
  "mcp.tool_call": "tool_calls",
  "http.request": "net_events",
};

/** The service's own ledger: what belongs to no VM. */
export const HOST_LEDGER = "host";

/** Who asked, for a person: two clients of the gateway are two. Rules and rows have the words apart. */
export function shownRequester(requester: string, tokenId: string | null): string {
  return tokenId === null ? requester : `${requester} (token ${tokenId})`;
}
