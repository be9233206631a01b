import { apiFailure } from "@capsem/api";
import { Failure } from "@capsem/base";
import { type MuxStream, readJobChunks } from "@capsem/wire";
import type { WithheldOutputs } from "../boundary/withheld-outputs.ts";
import type { OwnerRun } from "../owner/owner-run.ts";

/** One client's way to a job's output, from an offset on. Its stream is open only once the output may be given. */
export class OutputReader {
  readonly #run: OwnerRun;
  readonly #job: string;
  readonly #offset: number;
  readonly #withheld: WithheldOutputs;
  #stream: MuxStream | null = null;
  /** Where what is read begins: later than asked where the beginning was dropped. */
  #given: number;
  #readBytes = 0;
  #hasLeft = false;

  constructor(run: OwnerRun, job: string, offset: number, withheld: WithheldOutputs) {
    this.#run = run;
    this.#job = job;
    this.#offset = offset;
    this.#given = offset;
    this.#withheld = withheld;
  }

  get given(): number {
    return this.#given;
  }

  /** Its reader missed something: before its offset was kept, while it was slow, or on the way from the guest. */
  isMissing(writtenBytes: number): boolean {
    return this.#given > this.#offset || this.#given + this.#readBytes < writtenBytes;
  }

  /** Opens it where it may be given now. Throws where it never may. */
  async openUnlessHeld(): Promise<void> {
    if (!this.#withheld.isUnjudged(this.#run, this.#job)) await this.#open();
  }

  /** Until the job's end; of a held job from its end on. Throws why it may not be given. */
  async *chunks(signal: AbortSignal): ReturnType<typeof readJobChunks> {
    if (this.#stream === null) await this.#withheld.released(this.#run, this.#job, signal);
    const stream = this.#stream ?? (await this.#open());
    try {
      for await (const { kind, bytes } of readJobChunks(stream, ["stdout", "stderr"])) {
        this.#readBytes += bytes.length;
        yield { kind, bytes };
      }
    } catch (thrown) {
      if (!isBroken(thrown)) throw await this.#run.streamFailure(thrown);
      throw await this.#run.readFailure(thrown, brokenOutput(this.#job, thrown));
    }
  }

  leave(): void {
    this.#hasLeft = true;
    this.#stream?.reset("cancelled");
  }

  async #open(): Promise<MuxStream> {
    const request = { job: this.#job, offset: this.#offset, follow: true };
    const { result, stream } = await this.#run.open("job.read", request);
    // Its reader may leave while it is opened.
    if (this.#hasLeft) {
      stream.reset("cancelled");
      throw apiFailure("cancelled", "Cannot give the output: its reader has left");
    }
    this.#stream = stream;
    this.#given = result.offset;
    return stream;
  }
}

/** Kinds of wire's chunk reader: what the owner sent is its fault, never the client's. */
const BROKEN_KINDS: readonly string[] = ["bad_message", "wrong_direction", "too_large", "truncated"];

function isBroken(thrown: unknown): thrown is Failure {
  return thrown instanceof Failure && BROKEN_KINDS.includes(thrown.kind);
}

function brokenOutput(job: string, cause: Failure): Failure {
  return apiFailure("internal", `Cannot read the output of job "${job}": its form is broken`, {
    cause,
    detail: cause.message,
  });
}
