import { type ImageFailureKind, imageFailure } from "./error.ts";
import type { ImagePowers } from "./powers.ts";
import type { OnProgress } from "./progress.ts";
import type { Recipe } from "./recipe.ts";
import { DEBIAN_PATH } from "./requirements.ts";

/** What the steps of one build share. The build owns both folders and removes `scratchDir` in any case. */
export interface BuildContext {
  readonly powers: ImagePowers;
  readonly recipe: Recipe;
  /** Ours alone, fast, gone after the build. */
  readonly scratchDir: string;
  /** In `scratchDir`, open to the user namespace in which packages are installed. */
  readonly outDir: string;
  /** In the cache; becomes the image's folder. */
  readonly buildDir: string;
  readonly signal: AbortSignal;
  readonly onProgress: OnProgress;
}

export interface Step {
  readonly program: string;
  readonly args: readonly string[];
  readonly timeoutMs: number;
  /** What the user is told could not be done: "unpack the kernel". */
  readonly purpose: string;
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly onLine?: (line: string) => void;
}

/** What Debian's programs may see of our environment: how to reach the network, nothing that may be secret. */
const PASSED_ON = /^((http|https|ftp|no|all)_proxy|SSL_CERT_(FILE|DIR))$/i;

/** The environment of Debian's programs, with a fixed PATH and language so that output can be parsed. */
export function toolEnv(
  env: ImagePowers["env"],
  extra: Readonly<Record<string, string>> = {},
): Record<string, string> {
  const passed: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && PASSED_ON.test(name)) passed[name] = value;
  }
  return {
    ...passed,
    PATH: DEBIAN_PATH,
    // Nothing of the user's own settings, which the users of the namespace could not read either.
    HOME: "/nonexistent",
    LC_ALL: "C.UTF-8",
    TZ: "UTC",
    DEBIAN_FRONTEND: "noninteractive",
    ...extra,
  };
}

/** Runs one program of the build; returns what it printed. An exit status other than 0 is a failure. */
export async function runStep(context: Pick<BuildContext, "powers" | "signal">, step: Step): Promise<string> {
  const { code, stdout, stderrTail } = await context.powers.run({
    program: step.program,
    args: step.args,
    env: step.env ?? toolEnv(context.powers.env),
    timeoutMs: step.timeoutMs,
    signal: context.signal,
    ...(step.cwd === undefined ? {} : { cwd: step.cwd }),
    ...(step.onLine === undefined ? {} : { onLine: step.onLine }),
  });
  if (code === 0) return stdout;
  const { kind, reason } = explain(stderrTail);
  throw imageFailure(kind, `Cannot ${step.purpose}: ${reason ?? `${step.program} ended with ${code}`}`, {
    detail: stderrTail,
  });
}

const NO_SPACE = /no space left on device|ENOSPC|not enough free space|disk quota exceeded/i;
const NO_NETWORK = new RegExp(
  [
    "could not resolve",
    "temporary failure (in name resolution|resolving)",
    "could not connect",
    "connection (timed out|refused|failed)",
    "network is unreachable",
    "E: Failed to fetch",
    "ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT",
  ].join("|"),
  "i",
);

/** Reads the reason out of what a program said last. */
export function explain(stderr: string): { kind: ImageFailureKind; reason?: string } {
  if (NO_SPACE.test(stderr)) return { kind: "image_no_space", reason: "no space left on the disk" };
  if (NO_NETWORK.test(stderr)) {
    return {
      kind: "image_no_network",
      reason: "the package sources do not answer (remedy: check the network)",
    };
  }
  const lines = stderr.split("\n");
  const line = REASONS.flatMap((pattern) => lines.find((each) => pattern.test(each)) ?? [])[0];
  return line === undefined
    ? { kind: "image_build_failed" }
    : { kind: "image_build_failed", reason: line.trim().slice(0, 300) };
}

/** What a line that gives the reason looks like, the surest first. The first of them is the cause. */
const REASONS: readonly RegExp[] = [
  /^E: (?!mmdebstrap failed|setup failed)/,
  /^npm error (?!code)/,
  /^[^\s:]{2,}: (?!.*warning)/,
];
