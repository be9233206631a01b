import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { askId } from "@capsem/api";
import { Failure, messageOf } from "@capsem/base";
import { writeFileAtomic } from "../home/atomic-file.ts";
import { readRegularFile } from "../home/regular-file.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { type AskRecord, askRecord } from "./ask-record.ts";
import { ASK_LIMITS } from "./limits.ts";

/** One file an ask, so that it outlives the service. While the service lives, its memory decides. */
export class AskFiles {
  readonly #folder: string;
  readonly #log: ServiceLog;
  /** Writes of one file follow one another. */
  readonly #writing = new Map<string, Promise<void>>();

  constructor(folder: string, log: ServiceLog) {
    this.#folder = folder;
    this.#log = log;
  }

  /** Those that can be read. Of another one nothing is lost but a question: it is asked again. */
  async load(): Promise<AskRecord[]> {
    const found: AskRecord[] = [];
    for (const name of (await readdir(this.#folder)).sort()) {
      const path = join(this.#folder, name);
      if (name.endsWith(".tmp")) await rm(path, { force: true });
      if (!askId.safeParse(name.replace(/\.json$/, "")).success) continue;
      try {
        const bytes = await readRegularFile(path, ASK_LIMITS.fileBytesMax);
        const parsed = askRecord.safeParse(JSON.parse(bytes.toString("utf8")));
        if (!parsed.success || pathOf(this.#folder, parsed.data.ask.id) !== path) {
          throw new Failure("file_corrupt", "it is no ask");
        }
        found.push(parsed.data);
      } catch (thrown) {
        this.#log("warning", "cannot read an ask: it is asked again", {
          file: name,
          cause: messageOf(thrown),
        });
      }
    }
    return found;
  }

  /** Resolves when it is on the disk. A disk that does not take it is logged, and told to who waits. */
  save(record: AskRecord): Promise<void> {
    const { id } = record.ask;
    const text = `${JSON.stringify(record)}\n`;
    return this.#next(id, () => writeFileAtomic(pathOf(this.#folder, id), text));
  }

  remove(id: string): Promise<void> {
    return this.#next(id, () => rm(pathOf(this.#folder, id), { force: true }));
  }

  /** Resolves when everything asked for so far was done, or failed. */
  async settled(): Promise<void> {
    while (this.#writing.size > 0) await Promise.allSettled(this.#writing.values());
  }

  #next(id: string, work: () => Promise<void>): Promise<void> {
    const before = this.#writing.get(id) ?? Promise.resolve();
    const writing = before.then(work, work);
    const kept = writing
      .catch((thrown: unknown) => {
        this.#log("error", "cannot keep an ask on the disk", { ask_id: id, cause: messageOf(thrown) });
      })
      .finally(() => {
        if (this.#writing.get(id) === kept) this.#writing.delete(id);
      });
    this.#writing.set(id, kept);
    return writing;
  }
}

function pathOf(folder: string, id: string): string {
  return join(folder, `${id}.json`);
}
