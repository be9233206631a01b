/** A child process of the test's making: what it says and when it ends is in the test's hands. */
import type { ChildProcess } from "node:child_process";
import { EventEmitter } from "node:events";
import { Duplex, PassThrough } from "node:stream";
import type { LogFields } from "./log.ts";

export class TestChild extends EventEmitter {
  readonly pid = 4_194_303;
  readonly stdin = new PassThrough();
  readonly stdout = new PassThrough();
  readonly stderr = new PassThrough();
  readonly control: Duplex;
  exitCode: number | null = null;
  signalCode: string | null = null;
  #heard = "";

  constructor() {
    super();
    this.stdin.on("data", (chunk: Buffer) => {
      this.#heard += chunk.toString();
    });
    this.control = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
  }

  get stdio(): unknown[] {
    return [this.stdin, this.stdout, this.stderr, this.control];
  }

  /** What came on its stdin. */
  get heard(): string {
    return this.#heard;
  }

  say(line: string): void {
    this.stdout.write(`${line}\n`);
  }

  /** The news of its end; what it said before may still be on the way. */
  exit(code: number): void {
    if (this.exitCode !== null || this.signalCode !== null) return;
    this.exitCode = code;
    this.emit("exit", code, null);
  }

  kill(): boolean {
    if (this.exitCode !== null || this.signalCode !== null) return false;
    this.signalCode = "SIGKILL";
    setImmediate(() => {
      this.stdout.end();
      this.control.destroy();
      this.emit("exit", null, "SIGKILL");
    });
    return true;
  }

  get asChild(): ChildProcess {
    return this as unknown as ChildProcess;
  }
}

/** A log that keeps the names of what went wrong. */
export function testLog() {
  const events: string[] = [];
  const put = (event: string, _fields?: LogFields) => void events.push(event);
  return { events, info: () => undefined, warn: put, error: put };
}
