import { createConnection } from "node:net";
import { expect, test } from "vitest";
import { WebSocket } from "ws";
import { createVm, useRigs } from "../testing/use-rigs.ts";

const rigWith = useRigs();
/** Processes start meanwhile, on machines that are busy. */
const SOON = { timeout: 30_000 };

const frame = (kind: number, body: Buffer) => Buffer.concat([Buffer.of(kind), body]);

test("a client that leaves while its job takes no input holds no stream until that job ends", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const run = () => rig.service.registry.get(id).run;
  const socket = new WebSocket(`ws://localhost/vms/${id}/stream`, ["capsem.stream.v1"], {
    createConnection: () => createConnection(rig.layout.socket),
  });
  const started = new Promise((resolve) => socket.once("message", resolve));
  await new Promise((resolve) => socket.once("open", resolve));
  const start = { type: "start", kind: "exec", argv: ["sleep", "300"], stdin: true };
  socket.send(frame(3, Buffer.from(JSON.stringify(start))));
  await started;
  // More than its pipe and all buffers on the way hold, and less than makes the service stop reading.
  for (let frames = 0; frames < 14; frames++) socket.send(frame(0, Buffer.alloc(60_000)));
  await expect.poll(() => socket.bufferedAmount, SOON).toBe(0);
  await expect.poll(() => run()?.streamCount, SOON).toBe(3);
  socket.terminate();
  // What stays waits for the job's end, which is recorded whoever left.
  await expect.poll(() => run()?.streamCount, SOON).toBe(1);
  expect(rig.service.registry.get(id).activeCount).toBe(0);
});
