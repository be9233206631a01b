import type { StreamClientMessage, StreamServerMessage } from "@capsem/api";
import { ERRORS, toApiFailure } from "@capsem/api";
import type { WebSocket } from "ws";
import { commandText, skip, startJob } from "./fixture-handlers.ts";
import type { FixtureJob } from "./fixture-job.ts";
import type { FixtureCaller } from "./fixture-policy.ts";
import type { FixtureState, FixtureVm } from "./fixture-state.ts";

/** The server side of capsem.stream.v1, without its limits. */
export function serveStream(
  state: FixtureState,
  vm: FixtureVm,
  socket: WebSocket,
  caller: FixtureCaller,
  log: (message: StreamClientMessage) => void,
): void {
  let job: FixtureJob | null = null;
  let isStdinClosed = false;
  const say = (message: StreamServerMessage) =>
    socket.send(Buffer.concat([Buffer.of(4), Buffer.from(JSON.stringify(message))]));
  const refuse = (thrown: unknown) => {
    const { kind, message: reason, retryable, facts } = toApiFailure(thrown);
    const { status } = ERRORS[kind];
    // Facts go beside the words, as in the error object of every other answer.
    const error = { ...facts, kind, reason, status, retryable };
    say({ type: "error", error });
    socket.close(1000);
  };
  const early: Buffer[] = [];
  socket.on("message", (data) => {
    const frame = data as Buffer;
    if (frame[0] === 0) {
      if (job === null) early.push(frame.subarray(1));
      else job.child.stdin?.write(frame.subarray(1));
      return;
    }
    const message = JSON.parse(frame.toString("utf8", 1)) as StreamClientMessage;
    log(message);
    try {
      switch (message.type) {
        case "start": {
          const start = () => startJob(vm, message, message.stdin === true || message.kind === "terminal");
          state.exec(vm, commandText(message), caller, start).then((started) => {
            job = started;
            for (const part of early) job.child.stdin?.write(part);
            if (isStdinClosed) job.child.stdin?.end();
            follow(job, 0, socket, say);
          }, refuse);
          break;
        }
        case "attach":
          job = vm.jobs.get(message.job_id) ?? null;
          if (job !== null) follow(job, message.offset, socket, say);
          break;
        case "signal":
          job?.kill(message.signal);
          break;
        case "close_stdin":
          isStdinClosed = true;
          job?.child.stdin?.end();
          break;
        case "resize":
          break;
      }
    } catch (thrown) {
      refuse(thrown);
    }
  });
}

function follow(
  job: FixtureJob,
  offset: number,
  socket: WebSocket,
  say: (message: StreamServerMessage) => void,
): void {
  say({ type: "started", job_id: job.id, offset });
  let sent = offset;
  let ended = false;
  const stop = job.watch(() => more());
  const more = () => {
    if (socket.readyState !== socket.OPEN) return stop();
    for (const { stream, data } of skip(job, sent)) {
      sent += data.length;
      for (let at = 0; at < data.length; at += 65_536)
        socket.send(Buffer.concat([Buffer.of(stream), data.subarray(at, at + 65_536)]));
    }
    if (!job.finished || ended) return;
    ended = true;
    stop();
    say({ type: "exit", ...job.end, truncated: false, agent_us: 1000 });
    socket.close(1000);
  };
  more();
}
