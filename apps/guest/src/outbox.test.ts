import { type Deferred, defer, Failure } from "@capsem/base";
import type { GuestControlPort, GuestMessage } from "@capsem/wire";
import { expect, test } from "vitest";
import { Outbox } from "./outbox.ts";
import { testLog } from "./test-child.ts";

/** A busy machine takes its time; who is done goes on at once. */
const SOON = { interval: 5, timeout: 10_000 };

const READY = { name: "ready", body: {} } as unknown as GuestMessage;
const DONE: GuestMessage = {
  name: "job_done",
  body: { job: "j", exit_code: 0, timed_out: false, stdout_bytes: 0, stderr_bytes: 0, agent_us: 1 },
};

/** A host that takes a message when the test says so. */
function testPort() {
  const names: string[] = [];
  const taking: Deferred<void>[] = [];
  const port = {
    stream: { reset: () => undefined },
    send: (message: GuestMessage) => {
      names.push(message.name);
      const taken = defer<void>();
      taking.push(taken);
      return taken.promise;
    },
  } as unknown as GuestControlPort;
  return { port, names, taking };
}

test("an end that no lane could carry is told to the next one behind its ready", async () => {
  const outbox = new Outbox(testLog(), () => 0);
  const [old, next] = [testPort(), testPort()];
  outbox.connect(old.port, READY);
  old.taking[0]?.resolve();
  outbox.put(DONE);
  await expect.poll(() => old.names, SOON).toEqual(["ready", "job_done"]);
  // As the lane does: the old stream fails, and the new one is there in the same turn.
  old.taking[1]?.reject(new Failure("lane_lost", "Cannot use stream: the lane is over"));
  outbox.connect(next.port, READY);
  await expect.poll(() => next.names, SOON).toEqual(["ready"]);
  next.taking[0]?.resolve();
  await expect.poll(() => next.names, SOON).toEqual(["ready", "job_done"]);
  next.taking[1]?.resolve();
  await outbox.flushed();
});
