import { messageOf } from "@capsem/base";

/** What a process ends by. */
export interface ProcessEnd {
  readonly stderr: { write(line: string): unknown };
  exit(code: number): unknown;
}

/** Runs a process to its end: 0, or 1 with a last line that says why. */
export async function runToEnd(source: string, run: () => Promise<void>, end: ProcessEnd): Promise<void> {
  try {
    await run();
    end.exit(0);
  } catch (thrown) {
    const line = { source, level: "error", message: `${source} failed`, cause: messageOf(thrown) };
    end.stderr.write(`${JSON.stringify(line)}\n`);
    end.exit(1);
  }
}
