import type { Readable } from "node:stream";

/** Ambient authority of the server, given by `powers-node.ts`. */
export interface Powers {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: Readable;
  /**
   * Takes stdout for the protocol alone: whatever else writes to it from then on lands on stderr. Rejects when the reader
   * has gone.
   */
  takeStdout(): (text: string) => Promise<void>;
  /** Before stdout is taken: for --help and --version. */
  print(text: string): void;
  /** One line on stderr. */
  say(line: string): void;
  /** The beginning of a file, at most so many bytes. */
  readFile(path: string, bytesMax: number): string;
  onEndSignal(listener: () => void): void;
  /** Calls back again and again until the returned function is called. */
  every(intervalMs: number, tick: () => void): () => void;
  random(bytes: number): Uint8Array;
  exit(code: number): void;
}
