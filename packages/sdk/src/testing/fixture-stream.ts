import type { StreamClientMessage, StreamServerMessage } from "@capsem/api";
import { toApiFailure } from "@capsem/api";
import type { WebSocket } from "ws";
import { skip, startJob } from "./fixture-handlers.ts";
import type { FixtureJob } from "./fixture-job.ts";
import type { FixtureVm } from "./fixture-state.ts";

/** The server side of capsem.stream.v1, without its limits. */
export function serveStream(
  vm: FixtureVm,
  socket: WebSocket,
  log: (message: StreamClientMessage) => void,
): void {
  let job: FixtureJob | null = null;
  const say = (message: StreamServerMessage) =>
    socket.send(Buffer.concat([Buffer.of(4), Buffer.from(JSON.stringify(message))]));
  socket.on("message", (data) => {
    const frame = data as Buffer;
    if (frame[0] === 0) {
      job?.child.stdin?.write(frame.subarray(1));
      return;
    }
    const message = JSON.parse(frame.toString("utf8", 1)) as StreamClientMessage;
    log(message);
    try {
      switch (message.type) {
        case "start":
          job = startJob(vm, message, message.stdin === true || message.kind === "terminal");
          follow(job, 0, socket, say);
          break;
        case "attach":
          job = vm.jobs.get(message.job_id) ?? null;
          if (job !== null) follow(job, message.offset, socket, say);
          break;
        case "signal":
          job?.kill(message.signal);
          break;
        case "close_stdin":
          job?.child.stdin?.end();
          break;
        case "resize":
          break;
      }
    } catch (thrown) {
      const { kind, message: reason, retryable } = toApiFailure(thrown);
      say({ type: "error", error: { kind, reason, status: 409, retryable } });
      socket.close(1000);
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
