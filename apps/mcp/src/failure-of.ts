import { CapsemError } from "@capsem/sdk";
import { cleanLine } from "./clean-line.ts";
import { ID_CHARS_MAX, REASON_CHARS_MAX } from "./limits.ts";
import { type FailureObject, ToolFailure } from "./tool-failure.ts";

/** What is known of a call that failed. */
export interface FailedCall {
  readonly tool: string;
  /** Whether it changes something: then a lost answer leaves its outcome open. */
  readonly mutates: boolean;
  /** It is a command in a VM, which ends when its call does. */
  readonly isJob: boolean;
  readonly timeoutMs: number;
  /** Why the call was given up from here, null when it was not. */
  readonly endedBy: "cancelled" | "timeout" | null;
}

const UNKNOWN = "whether it was carried out is unknown";

/** No tool brings these parts back: the model can only ask the person whose machine it is. */
const ASK = "ask the user to";
const START_GATEWAY = `${ASK} run: capsem gateway start`;
const START_SERVICE = `${ASK} run: capsem service start`;
const GIVE_TOKEN_FILE = `${ASK} give capsem-mcp the gateway's --token-file`;

/** Anything thrown, as the object for the model. */
export function failureOf(call: FailedCall, thrown: unknown): FailureObject {
  if (call.endedBy !== null) return endedFromHere(call, call.endedBy);
  if (thrown instanceof ToolFailure) return thrown.object;
  if (!(thrown instanceof CapsemError))
    return { kind: "internal", reason: `Cannot finish ${call.tool}: internal error`, retryable: false };
  if (thrown.status !== undefined) return answered(call, thrown, thrown.status);
  switch (thrown.kind) {
    case "timeout":
    case "cancelled":
      return endedFromHere(call, thrown.kind);
    case "unavailable":
      return unanswered(call, thrown);
    case "invalid_input":
      return { kind: "invalid_input", reason: clean(thrown.message), retryable: false };
    case "unauthorized":
      return {
        kind: "internal",
        reason: `${whyUnsent(call, thrown)}; ${START_GATEWAY}`,
        code: "unauthorized",
        retryable: false,
      };
    default:
      return {
        kind: "internal",
        reason: `Cannot finish ${call.tool}: ${call.mutates ? `its answer cannot be read, ${UNKNOWN}` : "its answer cannot be read"}`,
        code: thrown.kind,
        retryable: false,
      };
  }
}

/** The token's file could not be read, whose cause names paths; or somebody else listens where the gateway should. */
function whyUnsent({ tool }: FailedCall, { cause, message }: CapsemError): string {
  return cause === undefined ? clean(message) : `Cannot finish ${tool}: the gateway's token cannot be read`;
}

function endedFromHere(call: FailedCall, kind: "cancelled" | "timeout"): FailureObject {
  const why = kind === "cancelled" ? "cancelled" : `no answer within ${call.timeoutMs} ms`;
  const fate = call.isJob
    ? "; its command is being killed, what it did until then is unknown"
    : call.mutates
      ? `; ${UNKNOWN}`
      : "";
  const hint = call.isJob && kind === "timeout" ? ". Name timeout_secs for longer work" : "";
  return {
    kind,
    reason: `Cannot finish ${call.tool}: ${why}${fate}${hint}`,
    retryable: kind === "timeout" && !call.mutates,
  };
}

/** Kinds of the API that are kinds of a tool as well; all others are an HTTP status with a code. */
const SAME_KINDS = ["invalid_input", "cancelled", "timeout", "policy"] as const;

function answered(call: FailedCall, thrown: CapsemError, status: number): FailureObject {
  const { kind: code, message, retryable, outcome } = thrown;
  const kind =
    code === "mcp_server_timeout" ? "timeout" : (SAME_KINDS.find((same) => same === code) ?? "http");
  // A gateway that lost its service half way cannot say what became of a change.
  const isOpen = outcome === "unknown";
  const said = isOpen && !message.includes("unknown") ? `${clean(message)}; ${UNKNOWN}` : clean(message);
  const reason = withRemedy(call, code, said);
  return { kind, reason, status, code, ...idsOf(thrown), retryable: retryable && !isOpen };
}

/** By which rule, and what a person was asked. */
function idsOf({ ruleId, askId }: CapsemError): Pick<FailureObject, "rule_id" | "ask_id"> {
  return {
    ...(ruleId === undefined ? {} : { rule_id: cleanLine(ruleId, ID_CHARS_MAX) }),
    ...(askId === undefined ? {} : { ask_id: cleanLine(askId, ID_CHARS_MAX) }),
  };
}

function withRemedy({ tool, mutates }: FailedCall, code: CapsemError["kind"], said: string): string {
  switch (code) {
    case "mcp_server_not_found":
      return `${said}; capsem_mcp_servers has those that are declared, and only the user declares one: capsem mcp add`;
    case "mcp_server_disabled":
      return `${said}; only the user switches it on: capsem mcp add`;
    case "mcp_tool_not_found":
      return `${said}; capsem_mcp_tools has those of a server`;
    case "upstream_failed":
    case "mcp_server_timeout":
      // Nobody on this side knows how far it came.
      return mutates && !/not sent|unknown/.test(said) ? `${said}; ${UNKNOWN}` : said;
    case "service_away":
    case "unavailable":
      return `${said}; ${START_SERVICE}`;
    case "unauthorized":
      return `Cannot finish ${tool}: the token was replaced or is not this gateway's; ${GIVE_TOKEN_FILE}`;
    case "ledger_away":
      return `${said}; if it goes on, ${ASK} run: capsem status`;
    case "ledger_full":
      return `${said}; ${ASK} give it more room: capsem settings set ledger.vm_mib_max=MIB`;
    case "ledger_broken":
      return `${said}; ${ASK} run: capsem ledger verify --all`;
    case "locked":
      return `${said}; ${ASK} look at the corporation's policy: capsem corp info`;
    default:
      return said;
  }
}

function unanswered(call: FailedCall, thrown: CapsemError): FailureObject {
  if (call.mutates && !isNeverSent(thrown))
    return {
      kind: "network",
      reason: `Cannot finish ${call.tool}: the connection was lost, ${UNKNOWN}`,
      retryable: false,
    };
  return {
    kind: "network",
    reason: call.mutates
      ? `Cannot finish ${call.tool}: the gateway cannot be reached, nothing was sent; ${START_GATEWAY}`
      : `Cannot finish ${call.tool}: the gateway cannot be reached; ${START_GATEWAY}`,
    retryable: true,
  };
}

/** Nobody listened: certainly not carried out. Any other loss of a connection may come after the work. */
const NOT_CONNECTED = new Set(["ECONNREFUSED", "ENOENT", "ENOTFOUND", "EHOSTUNREACH", "ENETUNREACH"]);

function isNeverSent({ cause, outcome }: CapsemError): boolean {
  if (outcome === "unknown") return false;
  return cause instanceof Error && "code" in cause && NOT_CONNECTED.has(String(cause.code));
}

/** A reason may come from the other end. */
function clean(text: string): string {
  return cleanLine(text, REASON_CHARS_MAX);
}
