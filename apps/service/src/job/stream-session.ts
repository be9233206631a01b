import { apiFailure, type StreamClientMessage } from "@capsem/api";
import { Failure, ignore, messageOf, unreachable, within } from "@capsem/base";
import { type MuxStream, readJobChunks } from "@capsem/wire";
import type { ActContext } from "../act.ts";
import { commandDraft } from "../boundary/command-draft.ts";
import type { Boundary, VmFacts } from "../boundary/parts.ts";
import type { WithheldOutputs } from "../boundary/withheld-outputs.ts";
import { errorBody } from "../http/error-body.ts";
import { STREAM_LIMITS } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { CLOSE_CODES, type FrameSocket } from "./frame-socket.ts";
import { recordJobEnd } from "./job-end.ts";
import { jobStartParams } from "./job-request.ts";
import { JobStdin } from "./job-stdin.ts";
import {
  FRAME_KINDS,
  outputFrames,
  parseClientFrame,
  StreamViolation,
  serverFrame,
} from "./stream-frames.ts";

export interface StreamParts {
  readonly vm: VmFacts;
  readonly run: OwnerRun;
  readonly boundary: Boundary;
  readonly withheld: WithheldOutputs;
  readonly socket: FrameSocket;
  readonly newJobId: () => string;
  readonly context: ActContext;
  readonly log: ServiceLog;
}

type First = Extract<StreamClientMessage, { type: "start" | "attach" }>;

/**
 * One client of capsem.stream.v1: the first message starts a job or attaches to one, then bytes go both ways
 * until the job ends. The job is durable: a client that goes away leaves it running. Never rejects.
 */
export async function runStreamSession(parts: StreamParts): Promise<void> {
  const { socket, run } = parts;
  let output: MuxStream | null = null;
  let stdin: JobStdin | null = null;
  try {
    const first = await firstMessage(socket);
    if (first === null) return;
    const job = first.type === "start" ? await startJob(parts, first) : first.job_id;
    // To attach is no act of its own: the job was judged, and so was its end.
    parts.withheld.check(run, job);
    const offset = first.type === "start" ? 0 : first.offset;
    const opened = await run.open("job.read", { job, offset, follow: true });
    output = opened.stream;
    stdin = new JobStdin(run, job);
    await socket.send(serverFrame({ type: "started", job_id: job, offset: opened.result.offset }));
    const isOver = { value: false };
    const from = { asked: offset, given: opened.result.offset };
    const sending = sendOutput(parts, job, output, from).finally(() => {
      isOver.value = true;
    });
    ignore(sending);
    // Whoever ends first decides: the job's end, the client's leaving, a violation.
    await Promise.race([sending, takeInput(parts, job, stdin, isOver)]);
  } catch (thrown) {
    await refuse(parts, thrown);
  } finally {
    output?.reset("cancelled");
    stdin?.leave();
  }
}

async function firstMessage(socket: FrameSocket): Promise<First | null> {
  const late = () => new StreamViolation(CLOSE_CODES.protocolError, "no start message came in time");
  const frame = await within(socket.next(), STREAM_LIMITS.startTimeoutMs, late);
  if (frame === null) return null;
  const parsed = parseClientFrame(frame);
  if (parsed.kind === "message" && (parsed.message.type === "start" || parsed.message.type === "attach")) {
    return parsed.message;
  }
  throw new StreamViolation(CLOSE_CODES.protocolError, "the first message must be start or attach");
}

async function startJob(parts: StreamParts, start: Extract<First, { type: "start" }>): Promise<string> {
  const { vm, run, newJobId, context, boundary, withheld } = parts;
  const job = newJobId();
  const isTerminal = start.kind === "terminal";
  const isShell = start.command === undefined && start.argv === undefined;
  const asked = isShell ? { ...start, argv: ["bash", "-l"] } : start;
  const terminal = start.terminal ?? (isTerminal ? { cols: 80, rows: 24 } : undefined);
  const params = jobStartParams(job, asked, {
    stdin: isTerminal || (start.stdin ?? false),
    ...(isTerminal ? { terminal } : {}),
  });
  const { stdin: _isOpen, ...command } = asked;
  const act = commandDraft(vm, job, isTerminal ? "terminal" : "stream", command);
  await boundary.pass(context, act, async (permit) => {
    await run.call("job.start", params, { trace: context.trace });
    // The job lives on without its client, and so does the act.
    const { decision } = permit;
    const open = permit.keep();
    ignore(recordJobEnd({ run, job, act, open, decision, context, boundary, withheld }));
  });
  return job;
}

/** Until the job's end: its output at the client's pace, then how it ended. */
async function sendOutput(
  parts: StreamParts,
  job: string,
  output: MuxStream,
  from: { readonly asked: number; readonly given: number },
): Promise<void> {
  const { socket, run } = parts;
  let reached = from.given;
  try {
    for await (const { kind, bytes } of readJobChunks(output, ["stdout", "stderr"])) {
      reached += bytes.length;
      const number = kind === "stdout" ? FRAME_KINDS.stdout : FRAME_KINDS.stderr;
      for (const frame of outputFrames(number, bytes)) await socket.send(frame);
    }
  } catch (thrown) {
    throw isBrokenOutput(thrown) ? brokenOutput(job, thrown) : await run.streamFailure(thrown);
  }
  const end = await run.call("job.wait", { job });
  await socket.send(
    serverFrame({
      type: "exit",
      exit_code: end.exit_code,
      signal: end.signal,
      timed_out: end.timed_out,
      out_of_memory: end.out_of_memory,
      // This client missed something: before its offset was kept, while it was slow, or on the way from the guest.
      truncated: end.truncated || from.given > from.asked || reached < end.stdout_bytes + end.stderr_bytes,
      agent_us: end.agent_us,
    }),
  );
  socket.close(CLOSE_CODES.done, "the job ended");
}

/** Kinds of wire's chunk reader: what the owner sent is its fault, never the client's. */
const BROKEN_KINDS: readonly string[] = ["bad_message", "wrong_direction", "too_large", "truncated"];

function isBrokenOutput(thrown: unknown): thrown is Failure {
  return thrown instanceof Failure && BROKEN_KINDS.includes(thrown.kind);
}

function brokenOutput(job: string, cause: Failure): Failure {
  return apiFailure("internal", `Cannot read the output of job "${job}": its form is broken`, {
    cause,
    detail: cause.message,
  });
}

/** Until the client leaves. What comes after the job's end is dropped: the client cannot know of it yet. */
async function takeInput(
  parts: StreamParts,
  job: string,
  stdin: JobStdin,
  isOver: { readonly value: boolean },
): Promise<void> {
  for (let frame = await parts.socket.next(); frame !== null; frame = await parts.socket.next()) {
    const parsed = parseClientFrame(frame);
    if (isOver.value) continue;
    if (parsed.kind === "stdin") await stdin.write(parsed.bytes);
    else await obey(parts.run, job, stdin, parsed.message);
  }
}

async function obey(
  run: OwnerRun,
  job: string,
  stdin: JobStdin,
  message: StreamClientMessage,
): Promise<void> {
  switch (message.type) {
    case "resize":
      await tolerate(run.call("job.resize", { job, terminal: message.terminal }));
      return;
    case "signal":
      await tolerate(run.call("job.signal", { job, signal: message.signal, tree: message.signal === 9 }));
      return;
    case "close_stdin":
      return stdin.end();
    case "start":
    case "attach":
      throw new StreamViolation(
        CLOSE_CODES.protocolError,
        `${message.type} is only taken as the first message`,
      );
    default:
      return unreachable(message);
  }
}

/** A job that just ended cannot be signalled or resized; its exit is on the way to the client. */
async function tolerate(call: Promise<unknown>): Promise<void> {
  try {
    await call;
  } catch (thrown) {
    const isLate = thrown instanceof Failure && ["job_not_found", "wrong_state"].includes(thrown.kind);
    if (!isLate) throw thrown;
  }
}

async function refuse({ socket, log }: StreamParts, thrown: unknown): Promise<void> {
  if (thrown instanceof StreamViolation) return socket.close(thrown.code, thrown.message);
  const body = errorBody(thrown);
  if (body.error.kind === "internal") log("error", "stream failed", { cause: messageOf(thrown) });
  // A client that is gone needs no answer, and its leaving is what this then reports.
  if (body.error.kind === "cancelled") return socket.close(CLOSE_CODES.failed, "cancelled");
  await Promise.allSettled([socket.send(serverFrame({ type: "error", ...body }))]);
  socket.close(CLOSE_CODES.failed, body.error.kind);
}
