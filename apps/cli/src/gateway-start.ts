import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import * as z from "zod";
import { GATEWAY_START_MS } from "./limits.ts";
import type { Powers } from "./powers.ts";

export interface GatewayStart {
  readonly port: number;
  readonly allowUnconfined: boolean;
}

const started = z.looseObject({ port: z.number().int(), pid: z.number().int(), confined: z.boolean() });
export type StartedGateway = z.infer<typeof started>;

/** The gateway's exit code when another one of this home won. */
const ALREADY_RUNNING = 4;

/**
 * The gateway's own program makes the daemon, confines it, and answers when connections are welcome. Null when
 * another start was quicker.
 */
export async function startGateway(
  powers: Powers,
  { port, allowUnconfined }: GatewayStart,
): Promise<StartedGateway | null> {
  const more = allowUnconfined ? ["--allow-unconfined"] : [];
  const said = await runGateway(powers, "start", ["start", "--port", String(port), ...more]);
  if (said === null) return null;
  const parsed = started.safeParse(jsonOf(said));
  if (!parsed.success) throw new Failure("internal", "Cannot start the gateway: it said something else");
  return parsed.data;
}

/** The token is made in one program alone, and never passes through this one. */
export async function rotateToken(powers: Powers): Promise<void> {
  await runGateway(powers, "change the token of", ["token", "rotate"]);
}

function runGateway(powers: Powers, what: string, words: readonly string[]): Promise<string | null> {
  const script = join(powers.programFolder, "gateway.cjs");
  if (!existsSync(script)) {
    throw new Failure("unavailable", `Cannot ${what} the gateway: ${script} is not built`);
  }
  const args = [script, ...words, "--home", powers.home];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, { timeout: GATEWAY_START_MS }, (error, out, errors) => {
      if (error === null) return resolve(out);
      if (error.code === ALREADY_RUNNING) return resolve(null);
      const last = errors.trim().split("\n").at(-1) ?? "";
      const why = last.replace(/^capsem gateway: /, "");
      const message = why.startsWith("Cannot ") ? why : `Cannot ${what} the gateway: ${why || error.message}`;
      const hint = / port [0-9]+ is taken$/.test(message) ? "; --port chooses another" : "";
      reject(new Failure("unavailable", `${message}${hint}`, { cause: error }));
    });
  });
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // The caller says that it was something else.
    return null;
  }
}
