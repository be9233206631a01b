import { Failure } from "@capsem/base";
import { usageError } from "./cli-error.ts";
import type { Context } from "./context.ts";
import { SECRET_BYTES_MAX, SECRET_CHARS_MIN } from "./limits.ts";
import { readText } from "./text-input.ts";

const ENTER = /[\r\n]/;
const CONTROL_C = "\x03";
const CONTROL_D = "\x04";
const CONTROL_U = "\x15";
const BACKSPACES: ReadonlySet<string> = new Set(["\b", "\x7f"]);

/** From a pipe, or typed unseen; a line's end at its end is none of it. It is never in an error. */
export async function readSecret({ powers, output }: Pick<Context, "powers" | "output">): Promise<string> {
  const { stdin } = powers;
  const isTyped = stdin.isTerminal;
  const secret = isTyped
    ? await typed({ powers, output })
    : (await readText(powers, "-", SECRET_BYTES_MAX + 2)).replace(/\r?\n$/, "");
  if (secret.length < SECRET_CHARS_MIN)
    throw usageError(
      `Cannot register the credential: its secret has fewer than ${SECRET_CHARS_MIN} characters, and would be found everywhere`,
    );
  if (Buffer.byteLength(secret) > SECRET_BYTES_MAX)
    throw usageError(`Cannot register the credential: its secret is over ${SECRET_BYTES_MAX} bytes`);
  return secret;
}

async function typed({ powers, output }: Pick<Context, "powers" | "output">): Promise<string> {
  const { stdin } = powers;
  const restore = powers.onSignals(["SIGTERM", "SIGHUP"], () => {
    stdin.setRaw(false);
    powers.exit(1);
  });
  stdin.setRaw(true);
  try {
    await output.error("capsem: the secret (it is not shown): ");
    const decoder = new TextDecoder();
    let said = "";
    for await (const bytes of stdin.bytes()) {
      for (const key of decoder.decode(bytes, { stream: true })) {
        if (key === CONTROL_C || (key === CONTROL_D && said === "")) throw cancelled();
        if (ENTER.test(key) || key === CONTROL_D) return said;
        if (key === CONTROL_U) said = "";
        else if (BACKSPACES.has(key)) said = [...said].slice(0, -1).join("");
        else said += key;
        if (said.length > SECRET_BYTES_MAX) return said;
      }
    }
    throw cancelled();
  } finally {
    stdin.setRaw(false);
    restore();
    await output.error("\n");
  }
}

function cancelled(): Failure {
  return new Failure("cancelled", "Cannot register the credential: nothing was typed");
}
