import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { mcpServerName } from "@capsem/api";
import { Failure, messageOf } from "@capsem/base";
import { writeFileAtomic } from "../home/atomic-file.ts";
import { readRegularFile } from "../home/regular-file.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { PIN_LIMITS } from "./limits.ts";
import { type ServerRecord, serverRecord } from "./pin-record.ts";

/** One file a server. While the service lives, its memory decides. */
export class PinFiles {
  readonly #folder: string;
  readonly #log: ServiceLog;
  /** Writes of one file follow one another. */
  readonly #writing = new Map<string, Promise<void>>();

  constructor(folder: string, log: ServiceLog) {
    this.#folder = folder;
    this.#log = log;
  }

  /** Those that can be read, and the names of the others: what was approved there is not known. */
  async load(): Promise<{ records: ServerRecord[]; unreadable: string[] }> {
    const records: ServerRecord[] = [];
    const unreadable: string[] = [];
    for (const file of (await readdir(this.#folder)).sort()) {
      const path = join(this.#folder, file);
      if (file.endsWith(".tmp")) await rm(path, { force: true });
      const name = file.replace(/\.json$/, "");
      if (name === file || !mcpServerName.safeParse(name).success) continue;
      try {
        const bytes = await readRegularFile(path, PIN_LIMITS.fileBytesMax);
        const parsed = serverRecord.safeParse(JSON.parse(bytes.toString("utf8")));
        if (!parsed.success || parsed.data.server !== name) {
          throw new Failure("file_corrupt", "it is no list of pins");
        }
        records.push(parsed.data);
      } catch (thrown) {
        unreadable.push(name);
        this.#log("error", "cannot read what was approved of a tool server: all of it is asked about", {
          ...{ server: name, cause: messageOf(thrown) },
        });
      }
    }
    return { records, unreadable };
  }

  /** Resolves when it is on the disk. A disk that does not take it is logged, and told to who waits. */
  save(record: ServerRecord): Promise<void> {
    const text = `${JSON.stringify(record)}\n`;
    return this.#next(record.server, (path) => writeFileAtomic(path, text));
  }

  remove(server: string): Promise<void> {
    return this.#next(server, (path) => rm(path, { force: true }));
  }

  async settled(): Promise<void> {
    while (this.#writing.size > 0) await Promise.allSettled(this.#writing.values());
  }

  #next(server: string, work: (path: string) => Promise<void>): Promise<void> {
    const path = join(this.#folder, `${server}.json`);
    const writing = (this.#writing.get(server) ?? Promise.resolve()).then(
      () => work(path),
      () => work(path),
    );
    const kept = writing
      .catch((thrown: unknown) => {
        this.#log("error", "cannot keep the pins of a tool server", { server, cause: messageOf(thrown) });
      })
      .finally(() => {
        if (this.#writing.get(server) === kept) this.#writing.delete(server);
      });
    this.#writing.set(server, kept);
    return writing;
  }
}
