/** One JSON line on stderr; the service writes the files. */
export type Log = (
  level: "info" | "warning" | "error",
  message: string,
  fields?: Readonly<Record<string, unknown>>,
) => void;

/** `source` says which process it is; `now` is in milliseconds since 1970. */
export function createLog(source: string, write: (line: string) => void, now: () => number): Log {
  return (level, message, fields = {}) => {
    write(`${JSON.stringify({ source, time: new Date(now()).toISOString(), level, message, ...fields })}\n`);
  };
}
