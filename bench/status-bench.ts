import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { assert } from "@capsem/base";
import { startRig } from "../tests/support/rig.ts";
import { count } from "./measure.ts";
import { type Figure, figure, quantile } from "./statistics.ts";

/** Asks for the status until it is told to stop, in a thread of its own: nothing but the service is waited for. */
const ASKER = `
const { workerData, parentPort } = require("node:worker_threads");
const { request, Agent } = require("node:http");
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
const ask = () => new Promise((resolve, reject) => {
  const started = performance.now();
  const outgoing = request({ socketPath: workerData.socket, path: "/status", agent }, (reply) => {
    reply.resume();
    reply.on("end", () => reply.statusCode === 200 ? resolve(performance.now() - started) : reject(new Error("refused")));
  });
  outgoing.on("error", reject);
  outgoing.end();
});
let isOver = false;
parentPort.on("message", () => { isOver = true; });
(async () => {
  for (let warm = 0; warm < 50; warm++) await ask();
  parentPort.postMessage("warm");
  const times = [];
  while (!isOver) {
    times.push(await ask());
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  agent.destroy();
  parentPort.postMessage(times);
  parentPort.close();
})();
`;

/** How long the status takes, by who asks again and again while `work` goes on. */
async function statusDuring(socket: string, work: () => Promise<void>): Promise<number[]> {
  const worker = new Worker(ASKER, { eval: true, workerData: { socket } });
  const message = () =>
    new Promise<unknown>((resolve, reject) => worker.once("message", resolve).once("error", reject));
  await message();
  await work();
  const times = message();
  worker.postMessage("stop");
  return (await times) as number[];
}

const WRITES = 24;

/** The status route of a real service, quiet and while 24 rules are written one after the other, some rounds of it. */
export async function statusFigures(): Promise<Figure[]> {
  const rig = await startRig({ pool: 0 });
  try {
    const socket = join(rig.home, "run", "service.sock");
    const rounds = count(5, 1);
    const quiet = await statusDuring(
      socket,
      () => new Promise((done) => setTimeout(done, count(3_000, 300))),
    );
    const busy = await statusDuring(socket, async () => {
      for (let round = 0; round < rounds; round++) {
        for (let at = 0; at < WRITES; at++) {
          const match = `process.command == "bench ${round} ${at}"`;
          await rig.client.rules.put(`bench-${at}`, { action: "block", match });
        }
      }
    });
    const { rules } = await rig.client.rules.list();
    assert(rules.filter(({ name }) => name.startsWith("bench-")).length === WRITES, "every write must hold");
    const { is_whole } = await rig.client.ledgers.verify("host");
    assert(is_whole, "the ledger must be whole");
    const p95 = (times: number[]) => [
      quantile(
        [...times].sort((a, b) => a - b),
        0.95,
      ),
    ];
    return [
      figure("status, nothing else going on", "ms", quiet, "to compare"),
      figure("status while 24 rules are written", "ms", busy, "p95 ≤ 1.2"),
      figure("the same, p95", "ms", p95(busy), "≤ 1.2"),
    ];
  } finally {
    await rig.stop();
  }
}
