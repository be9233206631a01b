import { Failure } from "@capsem/base";
import { EXIT } from "./exit-code.ts";
import type { OutputPower, Powers } from "./powers.ts";
import { printableJson, printableLines } from "./render.ts";
import { systemReason } from "./system-words.ts";

/**
 * Where a command writes. A reader that went away ends the program quietly, as it ends other tools: after
 * `onBroken`, for commands that have something to end first. Nobody reading stderr is no reason to end.
 */
export class Output {
  readonly #powers: Powers;
  #onBroken: (() => Promise<void>) | null = null;

  constructor(powers: Powers) {
    this.#powers = powers;
  }

  set onBroken(listener: (() => Promise<void>) | null) {
    this.#onBroken = listener;
  }

  async print(data: Uint8Array | string): Promise<void> {
    try {
      await this.#powers.stdout.write(data);
    } catch (thrown) {
      if (codeOf(thrown) !== "EPIPE") throw outputFailure(thrown);
      const onBroken = this.#onBroken;
      this.#onBroken = null;
      await onBroken?.();
      this.#powers.exit(EXIT.brokenPipe);
    }
  }

  line(text: string): Promise<void> {
    return this.print(`${printableLines(text)}\n`);
  }

  json(value: unknown): Promise<void> {
    return this.print(`${printableJson(JSON.stringify(value))}\n`);
  }

  async error(data: Uint8Array | string): Promise<void> {
    await writeQuietly(this.#powers.stderr, data);
  }

  /** Words for people, on stderr: names and messages in them may be a guest's. */
  say(text: string): Promise<void> {
    return this.error(`capsem: ${printableLines(text)}\n`);
  }
}

async function writeQuietly(stream: OutputPower, data: Uint8Array | string): Promise<void> {
  try {
    await stream.write(data);
  } catch (thrown) {
    if (codeOf(thrown) !== "EPIPE" && codeOf(thrown) !== "EIO") throw thrown;
  }
}

export const OUTPUT_FAILED = "output_failed";

function outputFailure(cause: unknown): Failure {
  return new Failure(OUTPUT_FAILED, `Cannot write standard output: ${systemReason(cause)}`, { cause });
}

function codeOf(thrown: unknown): unknown {
  return thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
}
