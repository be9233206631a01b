import { apiFailure, type ErrorKind, type PolicyFaultInfo } from "@capsem/api";
import { Failure } from "@capsem/base";
import type { PolicyFault } from "@capsem/policy";

/** A fault with the name of its file; null for an edit. */
export function faultInfo(fault: PolicyFault, file: string | null): PolicyFaultInfo {
  return {
    code: fault.code,
    message: fault.message,
    file,
    line: fault.at?.line ?? null,
    column: fault.at?.column ?? null,
    subject: fault.subject ?? null,
  };
}

/** Of a whole file that cannot be taken. */
export function fileFault(file: string, message: string, code = "bad_file"): PolicyFaultInfo {
  return { code, message, file, line: null, column: null, subject: null };
}

/** `settings.toml:3:5: "limits.pool_size" takes a whole number from 0 to 16`. */
export function faultLine({ file, line, column, message }: PolicyFaultInfo): string {
  if (file === null) return message;
  return line === null ? `${file}: ${message}` : `${file}:${line}:${column ?? 1}: ${message}`;
}

/** Why a service does not start: every fault, a line each. */
export function startFailure(faults: readonly PolicyFaultInfo[]): Failure {
  return new Failure("settings_invalid", ["Cannot use the settings:", ...faults.map(faultLine)].join("\n  "));
}

const KIND_OF: Readonly<Record<string, ErrorKind>> = {
  locked: "locked",
  unknown_rule: "rule_not_found",
  unknown_server: "mcp_server_not_found",
};

/** What a route answers: the first fault in words, and all of them beside it. `what` is "change the settings". */
export function faultFailure(what: string, faults: readonly PolicyFaultInfo[]): Failure<ErrorKind> {
  const [first] = faults;
  const more = faults.length > 1 ? ` (and ${faults.length - 1} more)` : "";
  const text = first === undefined ? "nothing is known of it" : faultLine(first);
  const message = text.startsWith("Cannot ") ? text : `Cannot ${what}: ${text}`;
  return apiFailure(KIND_OF[first?.code ?? ""] ?? "invalid_input", `${message}${more}`, {
    facts: { faults },
  });
}
