import type { ChildProcess } from "node:child_process";
import { Duplex, type Readable, type Writable } from "node:stream";
import { assert, defer } from "@capsem/base";
import { ChunkSource } from "./chunk-source.ts";
import { ReportReader } from "./report-reader.ts";

/**
 * A prepared `capsem-helper job`: it waits for one request on descriptor 3, does it and ends. Whoever takes
 * it closes it on every path, or lets it stay while a background process holds the job's output.
 */
export class Zygote {
  readonly stdin: Writable;
  readonly stdout: ChunkSource;
  readonly stderr: ChunkSource;
  readonly reports: ReportReader;
  readonly exited: Promise<void>;
  readonly #child: ChildProcess;
  readonly #control: Duplex;
  #hasExited = false;

  constructor(child: ChildProcess) {
    const [stdin, stdout, stderr, control] = child.stdio;
    assert(stdin && stdout && stderr && control instanceof Duplex, "a zygote has four descriptors");
    this.#child = child;
    this.#control = control;
    this.stdin = stdin;
    this.stdout = new ChunkSource(stdout);
    this.stderr = new ChunkSource(stderr as Readable);
    this.reports = new ReportReader(control);
    // A program that closed its stdin, and a helper that ended, are told by their reports.
    stdin.on("error", () => stdin.destroy());
    control.on("error", () => control.destroy());
    const exited = defer<void>();
    this.exited = exited.promise;
    const over = () => {
      this.#hasExited = true;
      exited.resolve();
    };
    child.once("exit", over);
    child.once("error", over);
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  get hasExited(): boolean {
    return this.#hasExited;
  }

  /** False: it ended before it had all of the request, so that nothing of it was done. */
  request(bytes: Uint8Array): Promise<boolean> {
    if (!this.#control.writable) return Promise.resolve(false);
    return new Promise((resolve) => this.#control.write(bytes, (error) => resolve(error == null)));
  }

  /** A line to the running one. Lost without a word when the helper is gone. */
  send(bytes: Uint8Array | string): void {
    if (this.#control.writable) this.#control.write(bytes);
  }

  /** Resolves when the child took the bytes; at once when it takes no more. */
  async feed(bytes: Uint8Array): Promise<boolean> {
    const { stdin } = this;
    if (!stdin.writable) return false;
    if (stdin.write(bytes)) return true;
    await new Promise<void>((resolve) => {
      const done = () => {
        stdin.off("drain", done);
        stdin.off("close", done);
        resolve();
      };
      stdin.on("drain", done);
      stdin.on("close", done);
    });
    return stdin.writable;
  }

  /** Ends what it still does: its program is killed, an uncommitted file is removed. */
  close(): void {
    this.#control.destroy();
    for (const stream of this.#child.stdio) stream?.destroy();
  }
}
