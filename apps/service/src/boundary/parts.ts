import type { AskInfo, LedgerRow, LedgerTable } from "@capsem/api";
import type {
  Decision,
  DecisionAction,
  EventFields,
  EventType,
  FieldPath,
  LabelPath,
  PolicySnapshot,
  SecurityEvent,
} from "@capsem/policy";
import type { ActContext } from "../act.ts";

/** The VM that an act is about, as rules see it. */
export interface VmFacts {
  readonly id: string;
  readonly name: string | null;
  readonly image: string | null;
}

type Who = "event_id" | "time_ms" | "trace_id" | "turn_id" | "requester" | "client" | "token_id";
type End = "decision" | "rule_id" | "reason" | "outcome" | "error" | "duration_ms";
export type EndTable =
  | "exec_events"
  | "fs_events"
  | "lifecycle_events"
  | "policy_mutations"
  | "tool_calls"
  | "net_events";
/** What a table of acts says beside who asked, what was decided and how it ended. */
export type ActFacts<T extends EndTable> = Omit<LedgerRow<T>, Who | End>;
/** The facts of an act before it is done; `Permit.add` completes them. */
export type ActRow = { [T in EndTable]: { readonly table: T; readonly facts: ActFacts<T> } }[EndTable];

/** One act, before it is done: what rules judge, what a person is asked, and the row that it ends in. */
export interface ActDraft {
  readonly type: EventType;
  /** Whose ledger holds it; null is the host's. */
  readonly vm: VmFacts | null;
  readonly fields: EventFields;
  /** One line for a person; secrets are replaced by whoever stores or shows it. */
  readonly title: string;
  readonly row: ActRow;
  /**
   * What an approval is bound to beside type, VM and fields: arguments that no rule reads, such as an environment or
   * standard input. It is asked for where a person is, and goes into the digest alone. Absent, or nothing: the fields
   * say all of the act, so that a rule can name it.
   */
  readonly bound?: () => Bound | Promise<Bound>;
  /** Why what is bound is not all of the act, so that an approval serves one call alone. Null: it is. */
  readonly onlyOnce?: (bound: Bound) => string | null;
  /** Fields that nobody can know of this act, because only a part of a file passes: a rule that hangs on one blocks. */
  readonly unseen?: readonly FieldPath[];
  /** The VM is not there before it: its id is no argument, and a refusal is in the host's ledger. */
  readonly isNew?: true;
  /** Many files in one act, of which its event says the path of the folder alone. */
  readonly isTree?: true;
  /** What a refusal says that it cannot do, such as "write the rule", where its type does not say it. */
  readonly does?: string;
  /** A ledger that is full or broken does not hold it up: the host's takes what the VM's cannot. */
  readonly needsNoRoom?: true;
}
/** Arguments by the name that a person knows them by. */
export type Bound = Readonly<Record<string, unknown>>;
export type ResultDraft = Omit<ActDraft, "row" | "isNew" | "isTree" | "unseen" | "onlyOnce" | "needsNoRoom">;

/** The right to do one act, while it is done. */
export interface Permit {
  readonly eventId: string;
  readonly decision: Decision;
  /** More of its row: what only the doing shows. */
  add(facts: Partial<ActFacts<EndTable>> | Readonly<Record<string, string | number | boolean | null>>): void;
  /**
   * The act ends at another moment than its call, as a job or a download does: whoever keeps it writes its end. Only
   * the first end counts; work that throws has ended it.
   */
  keep(): OpenAct;
}

export interface OpenAct {
  /** Of the columns of the act's own row. */
  add(facts: Readonly<Record<string, string | number | boolean | null>>): void;
  close(outcome: "done" | "failed" | "cancelled" | "interrupted", error?: string): void;
}

/** The one gate of the service: nothing that a rule may judge is done beside it. */
export interface Boundary {
  /**
   * Makes the security event, decides, records the decision, waits for a person where a rule says ask, does the work,
   * and records how it ended. Throws Failure "policy" when refused, "ledger_away", "ledger_full" or "ledger_broken"
   * when it cannot be recorded, and what `work` throws.
   */
  pass<T>(context: ActContext, draft: ActDraft, work: (permit: Permit) => Promise<T>): Promise<T>;
  /**
   * As `pass`, for what comes back from an act: a block withholds it. Nothing is done afterwards, so no row ends it. `of`
   * is what was decided of the act: a rule that asked about it, and reads nothing of its result, does not ask again.
   */
  judgeResult(context: ActContext, draft: ResultDraft, of: Decision): Promise<void>;
  /** The same for a result whose bytes have gone by: recorded with what was decided, never refused, never throws. */
  noteResult(context: ActContext, draft: ResultDraft, of: Decision): DecisionAction;
  /** What happened without being asked for: recorded and judged for detection, never refused, never throws. */
  note(draft: ActDraft, outcome: "done" | "failed"): void;
}

/** Rules and settings of this moment; each call may answer another one. */
export interface PolicySource {
  snapshot(): PolicySnapshot;
}

/** Where rows go. */
export interface LedgerWriter {
  /**
   * Takes a row into the bounded queue, at once. Throws Failure "ledger_away", "ledger_full" or "ledger_broken" when it
   * does not: then nothing of it is stored.
   */
  append<T extends LedgerTable>(ledger: string, table: T, row: LedgerRow<T>): void;
  /** As `append`, all or none. `isDue`: they were allowed before they came, so that a full ledger takes them too. */
  appendAll(ledger: string, rows: readonly AnyRow[], isDue?: boolean): void;
  /**
   * Resolves when it is known whether rows would be taken, which takes a moment while a ledger is being restarted.
   * Throws "ledger_away"; what a full or broken ledger still takes depends on the row, and `append` says it.
   */
  ready(ledger: string, signal: AbortSignal): Promise<void>;
  /** Resolves when everything taken so far is committed. */
  flush(ledger: string, signal?: AbortSignal): Promise<void>;
}
export type AnyRow = { [T in LedgerTable]: { readonly table: T; readonly row: LedgerRow<T> } }[LedgerTable];

/** Replaces registered secrets. */
export interface Redactor {
  /** `isCut`: the text went on, so the beginning of a secret at its end is replaced too. */
  text(
    text: string,
    options?: { readonly isCut?: boolean },
  ): { readonly text: string; readonly isRedacted: boolean };
  /** Every text in a JSON value, keys too. */
  json<T>(value: T): { readonly value: T; readonly isRedacted: boolean };
}

export interface Asked {
  readonly event: SecurityEvent;
  readonly decision: Decision;
  readonly title: string;
  readonly vm: VmFacts | null;
  /** What an approval is bound to: type, VM and arguments. */
  readonly digest: string;
  /** Names of arguments that are in the digest and in no field. */
  readonly bound: readonly string[];
  /** The parts of the label that it is bound to as well; absent: all of them. */
  readonly labels?: readonly LabelPath[];
  /** Why an approval can serve this call alone; null: it can serve the same act again. */
  readonly onlyOnce: string | null;
  /** The client asks the person itself and calls again: the ask is left open, and nothing waits for it. */
  readonly isLater?: boolean;
}

export interface AskEnd {
  /** `pending`: left open. */
  readonly state: "approved" | "denied" | "expired" | "cancelled" | "pending";
  readonly ask: AskInfo;
}

/** Decisions that wait for a person. */
export interface Asks {
  /**
   * An approval that covers it, if there is one, is used at once; otherwise the ask is made and held until it is
   * resolved, its deadline comes, or the caller leaves. Throws "quota" when too many wait, and what the ledger throws.
   */
  hold(asked: Asked, context: ActContext): Promise<AskEnd>;
}
