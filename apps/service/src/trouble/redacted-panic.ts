import type { Panic } from "@capsem/api";
import type { Redactor } from "../boundary/parts.ts";
import { TROUBLE_LIMITS } from "../limits.ts";

/** The panic as it may be written: its message may have been cut in the middle of a secret. */
export function redactedPanic(redactor: Redactor, panic: Panic): Panic {
  const { message } = panic;
  const isCut = message.length >= TROUBLE_LIMITS.panicMessageCharactersMax;
  return { ...redactor.json(panic).value, message: redactor.text(message, { isCut }).text };
}
