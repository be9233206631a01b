import type { StreamClientMessage } from "@capsem/api";
import { Failure, ignore, messageOf, unreachable, within } from "@capsem/base";
import type { ActContext } from "../act.ts";
import { commandDraft } from "../boundary/command-draft.ts";
import { isOutputHeld } from "../boundary/output-rules.ts";
import type { Boundary, PolicySource, VmFacts } from "../boundary/parts.ts";
import type { WithheldOutputs } from "../boundary/withheld-outputs.ts";
import { errorBody } from "../http/error-body.ts";
import { STREAM_LIMITS } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { settled, settledWithin } from "../owner/settled.ts";
import { CLOSE_CODES, type FrameSocket } from "./frame-socket.ts";
import { recordJobEnd } from "./job-end.ts";
import { jobStartParams } from "./job-request.ts";
import { JobStdin } from "./job-stdin.ts";
import { OutputReader } from "./output-reader.ts";
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
  readonly policy: PolicySource;
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
  const { socket, run, withheld } = parts;
  let output: OutputReader | null = null;
  let stdin: JobStdin | null = null;
  try {
    const first = await firstMessage(socket);
    if (first === null) return;
    const job = first.type === "start" ? await startJob(parts, first) : first.job_id;
    // To attach is no act of its own: the job was judged, and so is its end.
    output = new OutputReader(run, job, first.type === "start" ? 0 : first.offset, withheld);
    await output.openUnlessHeld();
    stdin = new JobStdin(run, job);
    await socket.send(serverFrame({ type: "started", job_id: job, offset: output.given }));
    const isOver = { value: false };
    const sending = sendOutput(parts, job, output).finally(() => {
      isOver.value = true;
    });
    ignore(sending);
    // Whoever ends first decides: the job's end, the client's leaving, a violation.
    const taking = takeInput(parts, job, stdin, isOver);
    const left = socket.closed.then(() => settledWithin(settled(taking), LEFT_INPUT_MS));
    await Promise.race([sending, taking, left]);
  } catch (thrown) {
    await refuse(parts, thrown);
  } finally {
    output?.leave();
    stdin?.leave();
  }
}

/** What a client sent before it left is still its job's, where that takes it. */
const LEFT_INPUT_MS = 2_000;

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
  const { vm, run, newJobId, context, boundary, policy, withheld } = parts;
  const job = newJobId();
  const isTerminal = start.kind === "terminal";
  const isShell = start.command === undefined && start.argv === undefined;
  const asked = isShell ? { ...start, argv: ["bash", "-l"] } : start;
  const terminal = start.terminal ?? (isTerminal ? { cols: 80, rows: 24 } : undefined);
  const params = jobStartParams(job, asked, {
    stdin: isTerminal || (start.stdin ?? false),
    ...(isTerminal ? { terminal } : {}),
  });
  const act = commandDraft(vm, job, isTerminal ? "terminal" : "stream", asked);
  await boundary.pass(context, act, async (permit) => {
    // What a person types at a terminal must be seen at once: it cannot wait for its end.
    const held = !isTerminal && isOutputHeld(policy.snapshot()) ? withheld.hold(run, job) : null;
    const watched = { run, job, act, decision: permit.decision, context, boundary, withheld, held };
    try {
      await run.call("job.start", params, { trace: context.trace });
    } catch (thrown) {
      // Whether it runs is known by its end, where nobody answered.
      if (held !== null) ignore(recordJobEnd({ ...watched, open: null }));
      throw thrown;
    }
    // The job lives on without its client, and so does the act.
    ignore(recordJobEnd({ ...watched, open: permit.keep() }));
  });
  return job;
}

/** Until the job's end: its output at the client's pace, then how it ended. Of a held job nothing before it is judged. */
async function sendOutput(parts: StreamParts, job: string, output: OutputReader): Promise<void> {
  const { socket, run, context } = parts;
  for await (const { kind, bytes } of output.chunks(context.signal)) {
    const number = kind === "stdout" ? FRAME_KINDS.stdout : FRAME_KINDS.stderr;
    for (const frame of outputFrames(number, bytes)) await socket.send(frame);
  }
  const end = await run.call("job.wait", { job });
  await socket.send(
    serverFrame({
      type: "exit",
      exit_code: end.exit_code,
      signal: end.signal,
      timed_out: end.timed_out,
      out_of_memory: end.out_of_memory,
      truncated: end.truncated || output.isMissing(end.stdout_bytes + end.stderr_bytes),
      agent_us: end.agent_us,
    }),
  );
  socket.close(CLOSE_CODES.done, "the job ended");
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
