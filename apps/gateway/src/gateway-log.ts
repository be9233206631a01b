import { closeSync, writeSync } from "node:fs";
import { messageOf } from "@capsem/base";
import { LOG_LIMITS } from "./limits.ts";
import type { Powers } from "./powers.ts";

export type LogLevel = "info" | "warning" | "error";

/** The gateway's own log: JSON lines of ids, counts and words; never a header, a body, a path or a token. */
export type GatewayLog = (
  level: LogLevel,
  message: string,
  fields?: Readonly<Record<string, string | number | boolean | undefined>>,
) => void;

export interface LogSink {
  readonly log: GatewayLog;
  /** Opens the file again: whoever opens it moves a full one aside. */
  reopen(): Promise<void>;
  close(): void;
}

/** Lines are few, so each is written at once and is on the disk when the process dies. */
export async function openLogSink(powers: Powers): Promise<LogSink> {
  let fd: number | null = await powers.openLog();
  let bytes = 0;
  let isReopening = false;
  const reopen = async () => {
    if (isReopening) return;
    isReopening = true;
    try {
      const fresh = await powers.openLog();
      if (fd !== null) closeSync(fd);
      fd = fresh;
      bytes = 0;
    } finally {
      isReopening = false;
    }
  };
  const log: GatewayLog = (level, message, fields = {}) => {
    if (fd === null) return;
    const time = new Date(powers.nowMs()).toISOString();
    const line = `${JSON.stringify({ time, level, message, ...fields })}\n`;
    try {
      writeSync(fd, line);
    } catch {
      // A full disk costs the line, never the gateway.
      return;
    }
    bytes += Buffer.byteLength(line);
    if (bytes > LOG_LIMITS.fileBytesMax) {
      bytes = 0;
      reopen().catch((thrown: unknown) => log("error", "log not opened again", { cause: messageOf(thrown) }));
    }
  };
  return {
    log,
    reopen,
    close() {
      if (fd !== null) closeSync(fd);
      fd = null;
    },
  };
}
