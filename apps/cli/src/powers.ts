/** Ambient authority of the CLI, given by `powers-node.ts`. */
export interface Powers {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The service's folder. */
  readonly home: string;
  /** The folder of the bundles: where `service.cjs` is. */
  readonly programFolder: string;
  readonly stdin: InputPower;
  readonly stdout: OutputPower;
  readonly stderr: OutputPower;
  now(): number;
  /** Calls back for these signals, whose default is off until the returned function is called. */
  onSignals(names: readonly Signal[], listener: (name: Signal) => void): () => void;
  /** Ends the process now. */
  exit(code: number): never;
}

export type Signal = "SIGINT" | "SIGTERM" | "SIGHUP" | "SIGWINCH" | "SIGCONT";

export interface InputPower {
  readonly isTerminal: boolean;
  /** Read once; ending the loop closes it. */
  bytes(): AsyncIterable<Uint8Array>;
  setRaw(raw: boolean): void;
}

export interface OutputPower {
  readonly isTerminal: boolean;
  /** Columns and rows of a terminal. */
  size(): { readonly cols: number; readonly rows: number } | null;
  /** Resolves when written; rejects with the system's error. */
  write(data: Uint8Array | string): Promise<void>;
}
