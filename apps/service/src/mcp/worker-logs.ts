import { join } from "node:path";
import { WORKER_KINDS, type WorkerKind } from "@capsem/api";
import { messageOf } from "@capsem/base";
import type { LineRedactor } from "../log/line-redactor.ts";
import { LogFile } from "../log/log-file.ts";
import type { ServiceLog } from "../log/service-log.ts";

/** What workers say: one file a kind, each line with whose process said it. */
export class WorkerLogs {
  readonly #files: ReadonlyMap<WorkerKind, LogFile>;

  constructor(folder: string, redact: LineRedactor, log: ServiceLog) {
    const onError = (thrown: unknown) =>
      log("error", "cannot write a worker's log", { cause: messageOf(thrown) });
    this.#files = new Map(
      WORKER_KINDS.map((kind) => [kind, new LogFile(join(folder, `${kind}.jsonl`), { redact, onError })]),
    );
  }

  append(kind: WorkerKind, scope: string, line: string): void {
    // A line of our own is an object with members; what else comes stays as it is.
    const isOwn = line.startsWith('{"');
    this.#files.get(kind)?.append(isOwn ? `{"scope":${JSON.stringify(scope)},${line.slice(1)}` : line);
  }

  async flush(): Promise<void> {
    await Promise.all([...this.#files.values()].map((file) => file.flush()));
  }

  async close(): Promise<void> {
    await Promise.all([...this.#files.values()].map((file) => file.close()));
  }
}
