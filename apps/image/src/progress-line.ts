import type { ImageProgress, OnProgress } from "@capsem/vmm";

/** Where progress goes. `columns` is undefined where it is not a terminal. */
export interface ProgressOutput {
  readonly columns: number | undefined;
  write(text: string): void;
}

export interface ProgressLine {
  readonly show: OnProgress;
  /** Leaves the line, so that what comes next starts on its own. */
  readonly end: () => void;
}

/** On a terminal one line that is written over; elsewhere a line each; or JSON for a program that reads it. */
export function progressLine(output: ProgressOutput, json: boolean): ProgressLine {
  if (json)
    return { show: (progress) => output.write(`${JSON.stringify(progress)}\n`), end: () => undefined };
  const { columns } = output;
  if (columns === undefined) {
    return { show: (progress) => output.write(`${textOf(progress)}\n`), end: () => undefined };
  }
  let isOpen = false;
  return {
    show: (progress) => {
      output.write(`\r\u001b[K${textOf(progress).slice(0, Math.max(1, columns - 1))}`);
      isOpen = true;
    },
    end: () => {
      if (isOpen) output.write("\n");
      isOpen = false;
    },
  };
}

function textOf(progress: ImageProgress): string {
  const percent = progress.fraction === undefined ? "" : ` ${Math.floor(progress.fraction * 100)} %`;
  return `image:${percent} ${progress.message}`;
}
