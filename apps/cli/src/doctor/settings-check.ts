import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { DOCTOR_COMMAND_MS } from "../limits.ts";
import type { Powers } from "../powers.ts";

export type SettingsCheck =
  | { readonly kind: "good" }
  /** What a start would say, a line each. */
  | { readonly kind: "refused"; readonly faults: readonly string[] }
  | { readonly kind: "unknown"; readonly why: string };

/** What the service says before its faults, which are for a start. */
const HEADS = [/^capsem service: /, /^Cannot use the settings:?$/];

/** The service itself reads its files and says whether it would start with them; it starts nothing (`--check`). */
export function checkSettings({ home, programFolder, env }: Powers): Promise<SettingsCheck> {
  const script = join(programFolder, "service.cjs");
  if (!existsSync(script)) return Promise.resolve({ kind: "unknown", why: `${script} is not built` });
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [script, "--check", "--home", home],
      { timeout: DOCTOR_COMMAND_MS, env: { ...env, CAPSEM_HOME: home } },
      (error, _out, said) => resolve(error === null ? { kind: "good" } : failed(error, said)),
    );
  });
}

function failed(
  { killed, code }: { killed?: boolean | undefined; code?: unknown },
  said: string,
): SettingsCheck {
  if (killed === true) return { kind: "unknown", why: `no answer within ${DOCTOR_COMMAND_MS / 1_000} s` };
  const lines = said
    .split("\n")
    .map((line) => HEADS.reduce((text, head) => text.replace(head, ""), line.trim()))
    .filter((line) => line !== "");
  // One that knows no such question, or that broke, has said nothing of the files.
  if (code !== 1 || lines.length === 0 || /Unknown option|\bat .*\.c?js:\d+/.test(said))
    return { kind: "unknown", why: "this service cannot check them" };
  return { kind: "refused", faults: lines };
}
