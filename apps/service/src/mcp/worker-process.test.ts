import { duplexPair, PassThrough } from "node:stream";
import { type Deferred, defer } from "@capsem/base";
import { createPeer } from "@capsem/rpc";
import { expect, test } from "vitest";
import type { OwnerExit } from "../powers.ts";
import { WorkerProcess } from "./worker-process.ts";

/** A worker whose end and whose words are in the test's hands. */
function scripted(said: string[]) {
  const [near, far] = duplexPair();
  const exited: Deferred<OwnerExit> = defer();
  const stderr = new PassThrough();
  const child = {
    pid: 1,
    stdin: new PassThrough(),
    stderr,
    rpc: near,
    exited: exited.promise,
    kill: () => true,
  };
  const pairs = { socketPair: () => [10, 11], close: () => undefined, send: async () => undefined };
  const powers = { startWorker: () => child, pairs, nowMs: () => 0, monotonicMs: () => 0 };
  const worker = new WorkerProcess(
    {
      ...{ powers, allowUnconfined: () => true, onLogLine: () => undefined },
      ...{ keepPanic: () => undefined, log: () => undefined },
    } as unknown as ConstructorParameters<typeof WorkerProcess>[0],
    {
      ...{ kind: "proxy", scope: "host", vm: null },
      handlers: {
        "facts.append": async () => {
          said.push("facts");
          return {};
        },
      },
    },
  );
  void worker.lost.then(() => said.push("lost"));
  return { worker, exited, stderr, peer: createPeer({ role: "guest", duplex: far }) };
}

test("what a worker said before its end is heard, though the news of that end comes first", async () => {
  const said: string[] = [];
  const { worker, exited, stderr, peer } = scripted(said);
  exited.resolve({ code: 0, signal: null, message: null } as OwnerExit);
  for (let hops = 0; hops < 50; hops += 1) await Promise.resolve();
  await peer.call("facts.append", {});
  peer.close();
  stderr.end();
  await worker.gone;
  expect(said).toEqual(["facts", "lost"]);
});
