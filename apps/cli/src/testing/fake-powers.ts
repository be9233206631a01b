import { Output } from "../output.ts";
import type { InputPower, OutputPower, Powers } from "../powers.ts";
import { nodePowers } from "../powers-node.ts";

export interface FakePowers {
  readonly powers: Powers;
  readonly output: Output;
  /** What standard output and standard error got, together in order. */
  text(): string;
  readonly rawModes: boolean[];
  /** Moves the clock. */
  pass(ms: number): void;
  type(keys: string): void;
  endInput(): void;
}

/** A terminal, or a pipe, that a test types into. */
export function fakePowers({ isTerminal = true, env = {} as Record<string, string> } = {}): FakePowers {
  const said: string[] = [];
  const rawModes: boolean[] = [];
  const queue: Uint8Array[] = [];
  let nowMs = 1_000_000;
  let isOver = false;
  let wake: () => void = () => undefined;
  async function* bytes(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const next = queue.shift();
      if (next !== undefined) yield next;
      else if (isOver) return;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  }
  const stdin: InputPower = { isTerminal, bytes, setRaw: (raw) => rawModes.push(raw) };
  const out: OutputPower = {
    isTerminal,
    size: () => null,
    write: async (data) => {
      said.push(String(data));
    },
  };
  const powers = { ...nodePowers(), env, stdin, stdout: out, stderr: out, now: () => nowMs };
  return {
    powers,
    output: new Output(powers),
    text: () => said.join(""),
    rawModes,
    pass: (ms) => {
      nowMs += ms;
    },
    type: (keys) => {
      queue.push(Buffer.from(keys));
      wake();
    },
    endInput: () => {
      isOver = true;
      wake();
    },
  };
}
