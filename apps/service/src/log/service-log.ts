import type { LogFile } from "./log-file.ts";

export type LogLevel = "info" | "warning" | "error";
export type LogFields = Readonly<Record<string, unknown>>;

/** The service's own log: JSON lines. Fields are ids, counts and words; never a body, an environment or a token. */
export type ServiceLog = (level: LogLevel, message: string, fields?: LogFields) => void;

export function createServiceLog(file: Pick<LogFile, "append">, nowMs: () => number): ServiceLog {
  return (level, message, fields = {}) => {
    file.append(JSON.stringify({ time: new Date(nowMs()).toISOString(), level, message, ...fields }));
  };
}
