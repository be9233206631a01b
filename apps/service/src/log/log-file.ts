import { type FileHandle, rename, rm, stat } from "node:fs/promises";
import { isMissing } from "../home/atomic-file.ts";
import { openForAppending } from "../home/regular-file.ts";
import { LOG_LIMITS } from "../limits.ts";
import { type LineRedactor, plainLines } from "./line-redactor.ts";
import { isCutLine } from "./line-splitter.ts";

export interface LogFileOptions {
  readonly fileBytesMax?: number;
  readonly filesKept?: number;
  /** What every line passes before it waits for the disk. */
  readonly redact?: LineRedactor;
  /** The first line is written at once, those of so long after it together; 0: as soon as the disk has the one before. */
  readonly gatherMs?: number;
  /** Told once of a disk that does not take the lines. */
  readonly onError?: (thrown: unknown) => void;
}

/**
 * Appends lines to PATH, which becomes PATH.1 and so on at a size limit. Lines are written in the background,
 * in order; what the disk cannot take in time is dropped and counted, so that no writer ever waits.
 */
export class LogFile {
  readonly path: string;
  readonly #bytesMax: number;
  readonly #kept: number;
  readonly #redact: LineRedactor;
  readonly #gatherMs: number;
  readonly #onError: (thrown: unknown) => void;
  #file: FileHandle | null = null;
  #size = 0;
  #pending: string[] = [];
  #pendingBytes = 0;
  #droppedLines = 0;
  #writing: Promise<void> | null = null;
  /** Who waits for everything to be written. */
  #flushes = 0;
  /** Ends the wait for more lines. */
  #hurry: () => void = () => undefined;
  #isClosed = false;
  #hasFailed = false;

  constructor(path: string, options: LogFileOptions = {}) {
    this.path = path;
    this.#bytesMax = options.fileBytesMax ?? LOG_LIMITS.fileBytesMax;
    this.#kept = options.filesKept ?? LOG_LIMITS.filesKept;
    this.#gatherMs = options.gatherMs ?? 0;
    this.#redact = options.redact ?? plainLines;
    this.#onError = options.onError ?? (() => undefined);
  }

  append(given: string): void {
    if (this.#isClosed) return;
    const line = this.#redact(given, isCutLine(given));
    const bytes = Buffer.byteLength(line) + 1;
    if (this.#pendingBytes + bytes > LOG_LIMITS.pendingBytesMax) {
      this.#droppedLines += 1;
      return;
    }
    this.#pending.push(line);
    this.#pendingBytes += bytes;
    this.#writing ??= this.#writeAll();
    if (this.#pendingBytes >= LOG_LIMITS.gatherBytesMax) this.#hurry();
  }

  /** Resolves when everything appended so far is in the file. */
  async flush(): Promise<void> {
    this.#flushes += 1;
    this.#hurry();
    while (this.#writing !== null) await this.#writing;
    this.#flushes -= 1;
  }

  /** Gives the descriptor back; a later line opens the file again. */
  async release(): Promise<void> {
    await this.flush();
    const file = this.#file;
    this.#file = null;
    await file?.close();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.release();
  }

  async #writeAll(): Promise<void> {
    try {
      while (this.#pending.length > 0) {
        if (this.#droppedLines > 0) {
          this.#pending.push(JSON.stringify({ source: "service", dropped_lines: this.#droppedLines }));
          this.#droppedLines = 0;
        }
        const text = `${this.#pending.join("\n")}\n`;
        this.#pending = [];
        this.#pendingBytes = 0;
        await this.#write(text);
        await this.#moreLines();
      }
    } catch (thrown) {
      this.#pending = [];
      this.#pendingBytes = 0;
      if (!this.#hasFailed) this.#onError(thrown);
      this.#hasFailed = true;
    } finally {
      this.#writing = null;
    }
  }

  #moreLines(): Promise<void> {
    const isDue = this.#flushes > 0 || this.#pendingBytes >= LOG_LIMITS.gatherBytesMax;
    if (this.#gatherMs === 0 || isDue) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, this.#gatherMs);
      this.#hurry = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async #write(text: string): Promise<void> {
    if (this.#file === null) await this.#open();
    const bytes = Buffer.byteLength(text);
    if (this.#size > 0 && this.#size + bytes > this.#bytesMax) await this.#rotate();
    await this.#file?.write(text);
    this.#size += bytes;
  }

  async #open(): Promise<void> {
    this.#file = await openForAppending(this.path);
    this.#size = (await this.#file.stat()).size;
  }

  async #rotate(): Promise<void> {
    await this.#file?.close();
    this.#file = null;
    await rm(`${this.path}.${this.#kept - 1}`, { force: true });
    for (let index = this.#kept - 2; index >= 0; index--) {
      const source = index === 0 ? this.path : `${this.path}.${index}`;
      await rename(source, `${this.path}.${index + 1}`).catch((thrown: unknown) => {
        if (!isMissing(thrown)) throw thrown;
      });
    }
    await this.#open();
  }
}

/** The files of one log, oldest first, those that exist. */
export async function logFilesOf(path: string, kept: number = LOG_LIMITS.filesKept): Promise<string[]> {
  const found: string[] = [];
  for (let index = kept - 1; index >= 0; index--) {
    const file = index === 0 ? path : `${path}.${index}`;
    const exists = await stat(file).then(
      () => true,
      () => false,
    );
    if (exists) found.push(file);
  }
  return found;
}
