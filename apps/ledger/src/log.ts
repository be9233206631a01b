/** One JSON line on stderr; the service writes the files. */
export type Log = (
  level: "info" | "warning" | "error",
  message: string,
  fields?: Readonly<Record<string, unknown>>,
) => void;

export function createLog(write: (line: string) => void, now: () => number): Log {
  return (level, message, fields = {}) => {
    write(
      `${JSON.stringify({ source: "ledger", time: new Date(now()).toISOString(), level, message, ...fields })}\n`,
    );
  };
}
