import { type Failure, ignore, within } from "@capsem/base";
import type { GuestErrorKind } from "@capsem/wire";
import { composeEnvironment } from "./environment.ts";
import { guestFailure, startFailure } from "./guest-error.ts";
import type { HelperCall } from "./helper-call.ts";
import { GUEST_LIMITS } from "./limits.ts";
import type { Zygote } from "./zygote.ts";

export interface ToolEnd {
  /** Exit code, or 128 + signal. */
  readonly code: number;
  /** What the tool's first complaint means, for the operation that was asked for. */
  failure(verb: string, path: string): Failure<GuestErrorKind>;
}

/** Programs of the workload (tar, find) that serve a file operation: run as the user, inside its limits. */
export class Tool {
  readonly #call: HelperCall;
  readonly #cgroup: string;

  constructor(call: HelperCall, cgroup: string) {
    this.#call = call;
    this.#cgroup = cgroup;
  }

  /**
   * Starts it in `cwd`; `work` moves its bytes and calls `end` when stdout was read to its end, or stdin was
   * ended. A cwd that cannot be entered is told as a failure to `verb` `path`.
   */
  run<T>(
    args: readonly string[],
    cwd: string,
    work: (zygote: Zygote, end: () => Promise<ToolEnd>) => Promise<T>,
  ): Promise<T> {
    const env = [...composeEnvironment(this.#call.account(), false), "LC_ALL=C.UTF-8"];
    return this.#call.run({ op: "exec", args, env, cwd, cgroup: this.#cgroup }, async (zygote) => {
      const first = await within(zygote.reports.report(), GUEST_LIMITS.jobStartTimeoutMs, () =>
        guestFailure("internal", "Cannot start tool: the helper did not answer"),
      );
      if (first?.kind === "error") throw startFailure(first, args[0] ?? "", cwd);
      if (first?.kind !== "started") throw guestFailure("internal", "Cannot start tool: the helper ended");
      const stderr = zygote.stderr.gather(GUEST_LIMITS.fileStderrBytesMax);
      ignore(stderr);
      return work(zygote, async () => {
        const last = await within(zygote.reports.report(), GUEST_LIMITS.toolEndTimeoutMs, () =>
          guestFailure("internal", "Cannot finish: the tool did not end"),
        );
        const code = last?.kind === "exit" ? last.code : last?.kind === "signal" ? 128 + last.signal : 255;
        const words = firstComplaint(await stderr);
        return { code, failure: (verb, path) => toolFailure(verb, path, words) };
      });
    });
  }

  /** All that it writes, up to `bytesMax`; more is too large. */
  capture(args: readonly string[], cwd: string, bytesMax: number): Promise<ToolEnd & { bytes: Buffer }> {
    return this.run(args, cwd, async (zygote, end) => {
      zygote.stdin.end();
      const taking = zygote.stdout.takeAll(bytesMax);
      ignore(taking);
      const bytes = await within(taking, GUEST_LIMITS.captureTimeoutMs, () =>
        guestFailure("file_failed", "Cannot list: the workload's own find did not end"),
      );
      if (bytes === undefined) throw guestFailure("too_large", "Cannot list: the listing is too large");
      return { bytes, ...(await end()) };
    });
  }
}

/** The first line that says what went wrong, else the first line: tar begins with mere remarks. */
function firstComplaint(bytes: Buffer): string {
  const lines = bytes.toString("utf8").split("\n");
  const line = lines.find((text) => kindOf(text) !== undefined) ?? lines[0] ?? "";
  let text = "";
  for (const character of line.slice(0, 512))
    text += character < " " || character === "\x7f" ? "?" : character;
  return text;
}

function kindOf(words: string): GuestErrorKind | undefined {
  return KIND_OF_WORDS.find(([pattern]) => pattern.test(words))?.[1];
}

/** The tool speaks English in our locale; the words are the C library's. */
const KIND_OF_WORDS: readonly (readonly [RegExp, GuestErrorKind])[] = [
  [/No such file or directory/, "file_not_found"],
  [/No space left on device|Disk quota exceeded/, "disk_full"],
  [/Permission denied|Operation not permitted|Read-only file system/, "file_not_permitted"],
  [/Not a directory|Is a directory/, "file_wrong_type"],
  [/does not look like a tar archive|Unexpected EOF|contains '\.\.'/, "invalid_input"],
];

function toolFailure(verb: string, path: string, words: string): Failure<GuestErrorKind> {
  const kind = kindOf(words) ?? "file_failed";
  return guestFailure(kind, `Cannot ${verb} "${path.slice(0, 256)}": ${words === "" ? "it failed" : words}`);
}
