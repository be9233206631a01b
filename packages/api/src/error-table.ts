import { Failure, type FailureFacts } from "@capsem/base";

/** The closed list of error kinds of the HTTP API: status, and whether the same request may succeed later. */
export const ERRORS = {
  invalid_input: { status: 400, retryable: false },
  /** The gateway: no token, or not the current one. */
  unauthorized: { status: 401, retryable: false },
  /** The gateway: a page or a name that is not this machine's. */
  origin_refused: { status: 403, retryable: false },
  not_permitted: { status: 403, retryable: false },
  /** Refused by a rule, or held by one and not approved: `rule_id`, and `ask_id` where one was made. */
  policy: { status: 403, retryable: false },
  /** The corporation has set it, or it is no rule of the user's. */
  locked: { status: 403, retryable: false },
  route_not_found: { status: 404, retryable: false },
  vm_not_found: { status: 404, retryable: false },
  job_not_found: { status: 404, retryable: false },
  file_not_found: { status: 404, retryable: false },
  rule_not_found: { status: 404, retryable: false },
  ask_not_found: { status: 404, retryable: false },
  credential_not_found: { status: 404, retryable: false },
  ledger_not_found: { status: 404, retryable: false },
  mcp_server_not_found: { status: 404, retryable: false },
  mcp_tool_not_found: { status: 404, retryable: false },
  /** It is declared, and switched off. */
  mcp_server_disabled: { status: 409, retryable: false },
  name_taken: { status: 409, retryable: false },
  wrong_state: { status: 409, retryable: false },
  file_exists: { status: 409, retryable: false },
  file_wrong_type: { status: 409, retryable: false },
  too_large: { status: 413, retryable: false },
  command_not_found: { status: 422, retryable: false },
  command_not_executable: { status: 422, retryable: false },
  file_not_permitted: { status: 403, retryable: false },
  file_failed: { status: 422, retryable: false },
  quota: { status: 429, retryable: true },
  /** The VM's ledger holds as much as it may: work is refused, deleting and exporting are not. */
  ledger_full: { status: 507, retryable: false },
  /** What was written is not what is there: the VM does not start until it was looked at. */
  ledger_broken: { status: 409, retryable: false },
  /** The ledger takes no rows just now, and nothing is done unrecorded. */
  ledger_away: { status: 503, retryable: true },
  /** The gateway: too many failures to authenticate. */
  throttled: { status: 429, retryable: true },
  cancelled: { status: 499, retryable: false },
  internal: { status: 500, retryable: false },
  /** The VM ended while the call ran; `reason` on the VM says why. */
  vm_gone: { status: 502, retryable: false },
  /** The VM could not be started: image, checkpoint or hypervisor. */
  start_failed: { status: 502, retryable: true },
  /** The gateway: the service does not answer. */
  service_away: { status: 502, retryable: true },
  /** A tool server, or what lies between: its own words are in the message. */
  upstream_failed: { status: 502, retryable: true },
  /** A tool server was silent for longer than its declaration or the caller lets it: what it did is unknown. */
  mcp_server_timeout: { status: 504, retryable: false },
  unavailable: { status: 503, retryable: true },
  unresponsive: { status: 504, retryable: true },
  timeout: { status: 504, retryable: false },
  disk_full: { status: 507, retryable: false },
  disk_floor: { status: 507, retryable: true },
} as const;

export type ErrorKind = keyof typeof ERRORS;
export const ERROR_KINDS = Object.keys(ERRORS) as readonly ErrorKind[];

export function isErrorKind(word: string): word is ErrorKind {
  return Object.hasOwn(ERRORS, word);
}

/** An operating error of the API. `message` reaches the user, `detail` only the log. */
export function apiFailure(
  kind: ErrorKind,
  message: string,
  options: { cause?: unknown; detail?: string; facts?: FailureFacts; retryable?: boolean } = {},
): Failure<ErrorKind> {
  return new Failure(kind, message, { retryable: ERRORS[kind].retryable, ...options });
}

/** The one place where anything thrown becomes an API error: unknown kinds become `internal`. */
export function toApiFailure(thrown: unknown): Failure<ErrorKind> {
  if (thrown instanceof Failure) {
    const kind = API_KIND_OF[thrown.kind] ?? thrown.kind;
    if (isErrorKind(kind)) {
      return new Failure(kind, thrown.message, {
        cause: thrown,
        // A rule's refusal is worth a retry where an ask is still open, which its maker knows.
        retryable: kind === "policy" ? thrown.retryable : ERRORS[kind].retryable,
        ...(thrown.facts === undefined ? {} : { facts: thrown.facts }),
        ...(thrown.detail === undefined ? {} : { detail: thrown.detail }),
      });
    }
  }
  if (thrown instanceof Error && "code" in thrown && thrown.code === "ENOSPC") {
    return new Failure("disk_full", "Cannot finish the request: the disk is full", { cause: thrown });
  }
  const detail = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  return new Failure("internal", "Cannot finish the request: an internal error was logged", {
    cause: thrown,
    detail,
  });
}

/** Kinds of the channel below (wire, rpc, vmm) in the API's words. */
const API_KIND_OF: Readonly<Record<string, ErrorKind>> = {
  peer_lost: "vm_gone",
  lane_lost: "vm_gone",
  guest_lost: "vm_gone",
  reset: "vm_gone",
  lane_timeout: "unresponsive",
  bad_message: "invalid_input",
  image_missing: "start_failed",
  checkpoint_corrupt: "start_failed",
  boot_timeout: "start_failed",
  hypervisor_exit: "start_failed",
};
