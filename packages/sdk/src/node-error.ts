import { messageOf } from "@capsem/base";
import { CapsemError } from "./error.ts";

/** Nobody listens: the request was certainly not carried out. */
const NOT_CONNECTED = new Set([
  ...["ENOENT", "ECONNREFUSED", "ENOTDIR", "EACCES", "EPERM", "EAGAIN"],
  ...["ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"],
]);

/** Errors of sockets and HTTP become ours here. `name` is the other end's. */
export function toNetworkError(thrown: unknown, mutates: boolean, name = "service"): CapsemError {
  if (thrown instanceof CapsemError) return thrown;
  const code = codeOf(thrown);
  if (code !== null && NOT_CONNECTED.has(code))
    return new CapsemError("unavailable", `Cannot reach ${name}: ${code}`, { cause: thrown });
  const text = code ?? messageOf(thrown);
  if (!mutates) return new CapsemError("unavailable", `Cannot reach ${name}: ${text}`, { cause: thrown });
  return new CapsemError(
    "unavailable",
    `Cannot finish request: the connection was lost (${text}), whether it was carried out is unknown`,
    { cause: thrown, retryable: false, outcome: "unknown" },
  );
}

export function codeOf(thrown: unknown): string | null {
  return thrown instanceof Error && "code" in thrown && typeof thrown.code === "string" ? thrown.code : null;
}
