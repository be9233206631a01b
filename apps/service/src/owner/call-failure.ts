import { apiFailure, type ErrorKind, isErrorKind, toApiFailure } from "@capsem/api";
import { Failure } from "@capsem/base";

/** Kinds of rpc in the API's words. An owner that does not answer in time is unresponsive, whatever it was asked. */
const KIND_OF: Readonly<Record<string, ErrorKind>> = {
  timeout: "unresponsive",
  too_many_streams: "quota",
};

/** Any failure of a call to an owner, as the user may see it. */
export function callFailure(method: string, thrown: unknown): Failure {
  if (!(thrown instanceof Failure)) return toApiFailure(thrown);
  const kind = KIND_OF[thrown.kind];
  if (kind === "unresponsive") {
    return apiFailure(kind, `Cannot finish the call: the VM did not answer in time`, {
      cause: thrown,
      detail: `${method}: ${thrown.message}`,
    });
  }
  if (kind !== undefined) return apiFailure(kind, thrown.message, { cause: thrown });
  return isErrorKind(thrown.kind)
    ? apiFailure(thrown.kind, thrown.message, { cause: thrown })
    : toApiFailure(thrown);
}
