import { Failure } from "@capsem/base";
import type { MuxStream } from "@capsem/wire";
import type { OwnerRun } from "../owner/owner-run.ts";

/** One client's way into a job's stdin. Leaving keeps stdin open for the next client; only `end` closes it. */
export class JobStdin {
  readonly #run: OwnerRun;
  readonly #job: string;
  #stream: MuxStream | null = null;
  #isOver = false;

  constructor(run: OwnerRun, job: string) {
    this.#run = run;
    this.#job = job;
  }

  /** Resolves when the owner has room for more. Bytes for a job that reads no more are dropped. */
  async write(bytes: Uint8Array): Promise<void> {
    if (this.#isOver || bytes.length === 0) return;
    await this.#tolerate(async () => (await this.#open()).write(bytes));
  }

  async end(): Promise<void> {
    if (this.#isOver) return;
    await this.#tolerate(async () => (await this.#open()).end());
    this.#isOver = true;
  }

  leave(): void {
    if (!this.#isOver) this.#stream?.reset("cancelled");
    this.#isOver = true;
  }

  async #open(): Promise<MuxStream> {
    if (this.#stream !== null) return this.#stream;
    const { stream } = await this.#run.open("job.write", { job: this.#job });
    this.#stream = stream;
    // Its client left meanwhile.
    if (this.#isOver) stream.reset("cancelled");
    return stream;
  }

  async #tolerate(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (thrown) {
      if (!(thrown instanceof Failure) || thrown.kind === "vm_gone" || thrown.kind === "internal")
        throw thrown;
      this.#isOver = true;
    }
  }
}
