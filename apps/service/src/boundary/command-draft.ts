import { posix } from "node:path";
import { apiFailure, type OwnerJobEnd } from "@capsem/api";
import { type EventFields, POLICY_LIMITS } from "@capsem/policy";
import { type Command, checkCommand } from "../job/job-request.ts";
import type { ActDraft, ActFacts, ResultDraft, VmFacts } from "./parts.ts";

/** How a job was asked for. */
export type JobKind = "exec" | "run" | "stream" | "terminal";

/** Where the guest starts a job that names no folder and no user. */
const WORKSPACE = "/workspace";
const USER = "user";

export interface AskedCommand extends Command {
  /** What is written to it; of a stream, true where that is not known yet. */
  readonly stdin?: unknown;
}

/** A command as rules see it: what the guest will run, with what it would assume filled in. */
export function commandDraft(vm: VmFacts, job: string, kind: JobKind, asked: AskedCommand): ActDraft {
  checkCommand(asked);
  const command = commandText(asked);
  const user = asked.user ?? USER;
  const cwd = posix.resolve(WORKSPACE, asked.cwd ?? ".");
  const [program] = asked.argv ?? [];
  const input = inputOf(kind, asked);
  const names = Object.keys(asked.env ?? {}).sort();
  return {
    type: "process.exec",
    vm,
    fields: {
      "process.command": command,
      "process.exec.id": job,
      "process.exec.user": user,
      "process.exec.cwd": cwd,
      "process.exec.env_names": names,
      "process.exec.has_stdin": input !== undefined,
      ...(program === undefined ? {} : { "process.exec.path": program }),
    },
    title: command,
    row: {
      table: "exec_events",
      facts: { ...NOT_ENDED, job_id: job, kind, command, user, cwd, env_names: JSON.stringify(names) },
    },
    // The same words with another environment or another script on stdin are another command.
    bound: () => ({
      ...(names.length === 0 ? {} : { environment: asked.env }),
      ...(input === undefined ? {} : { input }),
    }),
  };
}

/** What it will read. A person who lets a terminal or an open input go on has not seen what will come. */
function inputOf(kind: JobKind, { stdin }: AskedCommand): unknown {
  if (kind === "terminal") return "a terminal";
  if (kind === "stream") return stdin === true ? "open" : undefined;
  return stdin;
}

/** The job that was judged is the one that is started. */
export function jobOf({ fields }: Pick<ActDraft, "fields">): string {
  return fields["process.exec.id"] ?? "";
}

const NOT_ENDED = {
  exit_code: null,
  signal: null,
  timed_out: null,
  out_of_memory: null,
  stdout_bytes: null,
  stderr_bytes: null,
  stdout_preview: null,
  stderr_preview: null,
} satisfies Partial<ActFacts<"exec_events">>;

/** The first bytes of what a job wrote. */
export interface JobOutput {
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  /** They are not the first ones that it wrote, because it wrote more than is kept. */
  readonly isCut?: boolean;
}

/** What a job's row says of its end. */
export function endFacts(end: OwnerJobEnd, output: JobOutput | null) {
  return {
    exit_code: end.exit_code,
    signal: end.signal,
    timed_out: end.timed_out,
    out_of_memory: end.out_of_memory !== null,
    stdout_bytes: end.stdout_bytes,
    stderr_bytes: end.stderr_bytes,
    // Longer than what is shown of it: whoever cuts it sees that it goes on.
    stdout_preview: output === null ? null : decoder.decode(output.stdout),
    stderr_preview: output === null ? null : decoder.decode(output.stderr),
  } satisfies Partial<ActFacts<"exec_events">>;
}

const decoder = new TextDecoder("utf-8");

/** A job's end as rules see it. */
export function completeDraft(act: ActDraft, end: OwnerJobEnd, output: JobOutput | null): ResultDraft {
  const fields: EventFields = {
    ...act.fields,
    ...(end.exit_code === null ? {} : { "process.exec.exit_code": end.exit_code }),
    ...(output === null
      ? {}
      : { "process.exec.stdout": output.stdout, "process.exec.stderr": output.stderr }),
    ...(output?.isCut === true ? { "process.truncated": true } : {}),
  };
  return { type: "process.exec_complete", vm: act.vm, fields, title: `the output of ${act.title}` };
}

/** What a shell would have to be given to run the same. */
function commandText({ command, argv }: AskedCommand): string {
  const text = command ?? (argv ?? []).map(quoted).join(" ");
  // Quotes make it longer than what was asked for: a rule must see all of it.
  if (Buffer.byteLength(text) > POLICY_LIMITS.bodyBytesMax) {
    throw apiFailure(
      "too_large",
      `Cannot judge the command: quoted it is longer than ${POLICY_LIMITS.bodyBytesMax} bytes`,
    );
  }
  return text;
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
