import { ERRORS, type ErrorKind, isErrorKind } from "@capsem/api";
import { Failure } from "@capsem/base";

/** The error object of the API, as services answer it and the CLI prints it. */
export interface ErrorObject {
  readonly error: {
    readonly kind: string;
    readonly reason: string;
    readonly status?: number;
    readonly retryable: boolean;
  };
}

export interface CapsemErrorOptions {
  readonly cause?: unknown;
  readonly status?: number;
  readonly retryable?: boolean;
  readonly outcome?: "none" | "unknown";
}

/** The only class this package throws for operating errors. */
export class CapsemError extends Failure<ErrorKind> {
  /** The HTTP status, when the service answered. */
  readonly status: number | undefined;
  /** "unknown": the request was sent and its answer lost, so a mutation may have been carried out. */
  readonly outcome: "none" | "unknown";

  constructor(kind: ErrorKind, message: string, options: CapsemErrorOptions = {}) {
    super(kind, message, {
      ...(options.cause === undefined ? {} : { cause: options.cause }),
      retryable: options.retryable ?? ERRORS[kind].retryable,
    });
    this.name = "CapsemError";
    this.status = options.status;
    this.outcome = options.outcome ?? "none";
  }

  toJSON(): ErrorObject {
    const status = this.status === undefined ? {} : { status: this.status };
    return { error: { kind: this.kind, reason: this.message, ...status, retryable: this.retryable } };
  }
}

/** An answer's status and body become an error; a body that is not ours keeps only its status. */
export function errorOfAnswer(status: number, body: string): CapsemError {
  const object = parseErrorObject(body);
  if (object === null)
    return new CapsemError(kindOfStatus(status), `Cannot finish request: HTTP ${status}`, { status });
  return errorOfObject(object, status);
}

/** `object` is the inside of the API's error object; its words are shown, never trusted to be of our list. */
export function errorOfObject(
  object: { kind: string; reason: string; status?: number; retryable?: boolean },
  status?: number,
): CapsemError {
  const known = object.status ?? status;
  const kind = isErrorKind(object.kind) ? object.kind : kindOfStatus(known ?? 500);
  return new CapsemError(kind, object.reason, {
    ...(known === undefined ? {} : { status: known }),
    ...(object.retryable === undefined ? {} : { retryable: object.retryable }),
  });
}

export function cancelled(doing: string, cause?: unknown): CapsemError {
  return new CapsemError("cancelled", `Cannot finish ${doing}: cancelled`, { cause });
}

function parseErrorObject(body: string): ErrorObject["error"] | null {
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
  return {
    kind,
    reason,
    retryable: retryable === true,
    ...(typeof status === "number" ? { status } : {}),
  };
}

function kindOfStatus(status: number): ErrorKind {
  for (const kind of [
    "invalid_input",
    "not_permitted",
    "route_not_found",
    "too_large",
    "unavailable",
  ] as const)
    if (ERRORS[kind].status === status) return kind;
  return "internal";
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
