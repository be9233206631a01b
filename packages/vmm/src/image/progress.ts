/** The steps of a build, in the order in which they end. */
export const IMAGE_STEPS = [
  "check",
  "wait",
  "packages",
  "kernel",
  "node",
  "disks",
  "verify",
  "done",
] as const;
export type ImageStep = (typeof IMAGE_STEPS)[number];

/** One thing to tell the person who waits. `fraction` is of the whole build, 0 to 1, and never goes back. */
export interface ImageProgress {
  readonly step: ImageStep;
  readonly message: string;
  readonly fraction?: number;
}

export type OnProgress = (progress: ImageProgress) => void;

/** What mmdebstrap says of itself, and how much of a build is done when it says so (measured). */
const PHASES: readonly (readonly [RegExp, string, number])[] = [
  [/^I: running apt-get update/, "Reading Debian's package lists", 0.02],
  [/^I: downloading packages/, "Downloading the base system", 0.06],
  [/^I: extracting archives/, "Unpacking the base system", 0.14],
  [/^I: installing essential packages/, "Installing the base system", 0.28],
  [/^I: installing remaining packages/, "Installing git, Python and the other packages", 0.5],
  [/^I: running --customize-hook/, "Writing the root disk", 0.88],
];

/** The progress that a line of mmdebstrap's output stands for, if any. */
export function progressOfLine(line: string): ImageProgress | undefined {
  for (const [pattern, message, fraction] of PHASES) {
    if (pattern.test(line)) return { step: "packages", message, fraction };
  }
  return undefined;
}

/** Keeps `fraction` from going back when steps run side by side. */
export function forwardOnly(onProgress: OnProgress | undefined): OnProgress {
  let highest = 0;
  return (progress) => {
    if (onProgress === undefined) return;
    if (progress.fraction === undefined) {
      onProgress(progress);
      return;
    }
    highest = Math.max(highest, progress.fraction);
    onProgress({ ...progress, fraction: highest });
  };
}
