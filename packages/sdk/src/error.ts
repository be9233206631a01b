import type { PolicyFaultInfo } from "@capsem/api";
import { ERRORS, type ErrorKind, isErrorKind } from "@capsem/api/plain";
import { Failure } from "@capsem/base";
import { ERROR_FAULTS_MAX } from "./limits.ts";

/** The error object of the API, as services answer it and the CLI prints it. */
export interface ErrorObject {
  readonly error: {
    readonly kind: string;
    readonly reason: string;
    readonly status?: number;
    readonly retryable: boolean;
    /** The rule that refused or held, as `profiles.rules.NAME`. */
    readonly rule_id?: string;
    /** What a person can approve or deny. */
    readonly ask_id?: string;
    /** A rule judges files one by one, so that a whole tree was not taken: the files' own routes do it. */
    readonly needs_files?: boolean;
    /** `HOST:PORT` that a tool server would have to be granted, where that is what was refused. */
    readonly grant?: string;
    /** Every fault of a rule, a setting or a file, where that is what was refused. */
    readonly faults?: readonly PolicyFaultInfo[];
  };
}

/** What an error says beside its kind and words. */
export interface ErrorFacts {
  readonly ruleId?: string;
  readonly askId?: string;
  readonly needsFiles?: boolean;
  readonly grant?: string;
  readonly faults?: readonly PolicyFaultInfo[];
}

export interface CapsemErrorOptions extends ErrorFacts {
  readonly cause?: unknown;
  readonly status?: number;
  readonly retryable?: boolean;
  readonly outcome?: "none" | "unknown";
  readonly retryAfterMs?: number;
  readonly code?: string;
  readonly path?: string;
}

/** The only class this package throws for operating errors. */
export class CapsemError extends Failure<ErrorKind> {
  /** The HTTP status, when the service answered. */
  readonly status: number | undefined;
  /** "unknown": the request was sent and its answer lost, so a mutation may have been carried out. */
  readonly outcome: "none" | "unknown";
  /** How long the gateway asks to wait, when it throttles. */
  readonly retryAfterMs: number | undefined;
  /** Of `vm.fs` alone: the code that node:fs has for it, as `ENOENT`. */
  readonly code: string | undefined;
  readonly path: string | undefined;
  /** The rule that refused, of kind `policy`. */
  readonly ruleId: string | undefined;
  /** The ask that was made of the call, approved by nobody so far: `client.asks` resolves it. */
  readonly askId: string | undefined;
  /** A tree was refused because a rule judges each file: `vm.files` copies them one by one. */
  readonly needsFiles: boolean;
  /** `HOST:PORT`: a tool server was refused because its address is private or local, and this is what would allow it. */
  readonly grant: string | undefined;
  /** Empty where nothing was written that could have any. */
  readonly faults: readonly PolicyFaultInfo[];

  constructor(kind: ErrorKind, message: string, options: CapsemErrorOptions = {}) {
    super(kind, message, {
      ...(options.cause === undefined ? {} : { cause: options.cause }),
      retryable: options.retryable ?? ERRORS[kind].retryable,
      ...factsOf(options),
    });
    this.name = "CapsemError";
    this.status = options.status;
    this.outcome = options.outcome ?? "none";
    this.retryAfterMs = options.retryAfterMs;
    this.code = options.code;
    this.path = options.path;
    this.ruleId = options.ruleId;
    this.askId = options.askId;
    this.needsFiles = options.needsFiles ?? false;
    this.grant = options.grant;
    this.faults = options.faults ?? [];
  }

  toJSON(): ErrorObject {
    const status = this.status === undefined ? {} : { status: this.status };
    const { kind, message, retryable, facts = {} } = this;
    return { error: { kind, reason: message, ...status, retryable, ...facts } };
  }
}

/** In the words of the API, as `Failure` carries them; nothing where there are none. */
function factsOf({ ruleId, askId, needsFiles = false, grant, faults = [] }: ErrorFacts): {
  facts?: Record<string, unknown>;
} {
  const facts = {
    ...(ruleId === undefined ? {} : { rule_id: ruleId }),
    ...(askId === undefined ? {} : { ask_id: askId }),
    ...(needsFiles ? { needs_files: true } : {}),
    ...(grant === undefined ? {} : { grant }),
    ...(faults.length === 0 ? {} : { faults }),
  };
  return Object.keys(facts).length === 0 ? {} : { facts };
}

export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly mutates: boolean;
}

/** An answer's status and body become an error; a body that is not ours keeps only its status. */
export function errorOfAnswer({ status, headers, mutates }: Refusal, body: string): CapsemError {
  const object = parseErrorObject(body);
  const kind = object !== null && isErrorKind(object.kind) ? object.kind : kindOfStatus(status);
  const seconds = Number(headers["retry-after"] ?? Number.NaN);
  // Something between us and the service lost the service's answer. Our gateway says `retryable` when it had not asked.
  const isLost =
    mutates &&
    LOST_STATUSES.has(status) &&
    (object === null || (kind === "service_away" && !object.retryable));
  return new CapsemError(kind, object?.reason ?? `Cannot finish request: HTTP ${status}`, {
    status: object?.status ?? status,
    ...(object === null ? {} : { retryable: object.retryable, ...readFacts(object) }),
    ...(Number.isFinite(seconds) ? { retryAfterMs: seconds * 1000 } : {}),
    ...(isLost ? { outcome: "unknown", retryable: false } : {}),
  });
}

const LOST_STATUSES: ReadonlySet<number> = new Set([502, 504]);

/** `object` is the inside of the API's error object; its words are shown, never trusted to be of our list. */
export function errorOfObject(
  object: { kind: string; reason: string; status?: number; retryable?: boolean; [fact: string]: unknown },
  status?: number,
): CapsemError {
  const known = object.status ?? status;
  const kind = isErrorKind(object.kind) ? object.kind : kindOfStatus(known ?? 500);
  return new CapsemError(kind, object.reason, {
    ...(known === undefined ? {} : { status: known }),
    ...(object.retryable === undefined ? {} : { retryable: object.retryable }),
    ...readFacts(object),
  });
}

/** What is of another shape than ours is not there. */
function readFacts(object: Readonly<Record<string, unknown>>): ErrorFacts {
  const { rule_id: ruleId, ask_id: askId, needs_files: needsFiles, grant, faults } = object;
  const read = Array.isArray(faults) ? faults.slice(0, ERROR_FAULTS_MAX).flatMap(readFault) : [];
  return {
    ...(typeof ruleId === "string" ? { ruleId } : {}),
    ...(typeof askId === "string" ? { askId } : {}),
    ...(needsFiles === true ? { needsFiles } : {}),
    ...(typeof grant === "string" ? { grant } : {}),
    ...(read.length === 0 ? {} : { faults: read }),
  };
}

function readFault(value: unknown): PolicyFaultInfo[] {
  if (!isRecord(value) || typeof value.message !== "string") return [];
  const text = (name: string) => (typeof value[name] === "string" ? (value[name] as string) : null);
  const number = (name: string) => (Number.isSafeInteger(value[name]) ? (value[name] as number) : null);
  return [
    {
      code: text("code") ?? "",
      message: value.message,
      file: text("file"),
      line: number("line"),
      column: number("column"),
      subject: text("subject"),
    },
  ];
}

export function cancelled(doing: string, cause?: unknown): CapsemError {
  return new CapsemError("cancelled", `Cannot finish ${doing}: cancelled`, { cause });
}

type AnyErrorObject = Pick<ErrorObject["error"], "kind" | "reason" | "status" | "retryable"> &
  Readonly<Record<string, unknown>>;

function parseErrorObject(body: string): AnyErrorObject | null {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return null;
  }
  const inner = isRecord(value) ? value.error : undefined;
  if (!isRecord(inner)) return null;
  const { kind, reason, status, retryable } = inner;
  if (typeof kind !== "string" || typeof reason !== "string") return null;
  const { status: _, ...others } = inner;
  return {
    ...others,
    kind,
    reason,
    retryable: retryable === true,
    ...(typeof status === "number" ? { status } : {}),
  };
}

function kindOfStatus(status: number): ErrorKind {
  for (const kind of [
    "invalid_input",
    "unauthorized",
    "not_permitted",
    "route_not_found",
    "too_large",
    "throttled",
    "service_away",
    "unavailable",
  ] as const)
    if (ERRORS[kind].status === status) return kind;
  return "internal";
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
