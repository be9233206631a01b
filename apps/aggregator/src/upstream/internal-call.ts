import { Failure } from "@capsem/base";
import { memberOf } from "@capsem/mcp-protocol";
import { quoted, rude } from "./failure.ts";
import { type CallSink, OpenCall, type Outcome } from "./open-call.ts";
import type { Session } from "./session.ts";

const NOBODY = { sampling: false, elicitation: false, roots: false };
const SILENCE: CallSink = {
  notification: () => Promise.resolve(),
  request: () => Promise.reject(new Failure("cancelled", "nobody is asked")),
};

/** A request of our own: nobody hears what comes before its answer. */
export function internalCall(
  method: string,
  paramsText: string | undefined,
  timeoutMs: number,
  signal: AbortSignal,
): OpenCall {
  return new OpenCall({ method, paramsText, client: NOBODY, timeoutMs }, SILENCE, signal);
}

/** The result. Throws "upstream_failed" with the error's words, which its code is the detail of. */
export async function performInternal(session: Pick<Session, "perform">, call: OpenCall): Promise<string> {
  try {
    await session.perform(call);
  } catch (thrown) {
    call.fail(thrown as Error);
  }
  return resultOf(call, await call.outcome);
}

function resultOf(call: OpenCall, { kind, text }: Outcome): string {
  if (kind === "result") return text;
  const { message, code } = errorParts(text);
  throw rude(`refuses ${call.request.method}: ${quoted(message)}`, { detail: `rpc_${code}` });
}

/** Of an error object as a server wrote it. */
export function errorParts(text: string): { code: number; message: string } {
  const code = Number(memberOf(text, "code"));
  const message = memberOf(text, "message");
  return {
    code: Number.isSafeInteger(code) ? code : 0,
    message: message?.startsWith('"') === true ? (JSON.parse(message) as string) : "no message",
  };
}
