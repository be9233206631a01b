import { createServer, request as httpRequest, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { defer, utf8 } from "@capsem/base";
import { expect, onTestFinished, test } from "vitest";
import { followEvents } from "./events.ts";
import { withIdleLimit } from "./idle.ts";
import { Job } from "./job.ts";
import type { Dial } from "./node-dial.ts";
import { httpTransport } from "./node-transport.ts";
import { operation } from "./operation.ts";
import type { Transport, TransportSocket } from "./transport.ts";

const READ = { mutates: false } as const;

function dialOf(options: Dial["options"]): Dial {
  return {
    ...{
      name: "service",
      peer: "the service",
      request: httpRequest,
      prefix: "",
      webSocket: "ws://localhost",
    },
    options,
    close: () => undefined,
  };
}

/** Whoever listens there takes no connection, as a process that was stopped. */
function unreachable(): Transport {
  return httpTransport(() => dialOf(() => ({ createConnection: () => undefined as never })));
}

test("who cancels while no connection stands is told at once, and has no place any more", async () => {
  const transport = unreachable();
  for (let round = 0; round < 50; round++) {
    const abort = new AbortController();
    const call = transport.request("GET", "/", { ...READ, signal: abort.signal });
    setImmediate(() => abort.abort());
    await expect(call).rejects.toMatchObject({ kind: "cancelled" });
  }
});

test("a time limit holds while no connection stands", async () => {
  const call = unreachable().request("GET", "/", { ...READ, timeoutMs: 20 });
  await expect(call).rejects.toMatchObject({ kind: "timeout" });
});

/** A server that begins its answers and says no more. */
async function stalled(): Promise<{ transport: Transport; left: Promise<void> }> {
  const left = defer<void>();
  const server: Server = createServer((_request, response: ServerResponse) => {
    response.once("close", () => left.resolve());
    response.writeHead(200, { "content-type": "application/json" });
    response.write('{"status"');
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const transport = httpTransport(() => dialOf(() => ({ host: "127.0.0.1", port, agent: false })));
  return { transport, left: left.promise };
}

test("an answer that stands still in its midst is a timeout, and its connection is closed", async () => {
  const { transport, left } = await stalled();
  const call = operation(transport, "health")({}, { timeoutMs: 50 });
  await expect(call).rejects.toMatchObject({ kind: "timeout", outcome: "none" });
  await left;
});

test("a change whose answer stands still has an unknown outcome", async () => {
  const { transport, left } = await stalled();
  const call = operation(transport, "delete")({ params: { id: "vm_x" } }, { timeoutMs: 50 });
  await expect(call).rejects.toMatchObject({ kind: "timeout", outcome: "unknown" });
  await left;
});

test("a transfer that stands still leaves no connection open", async () => {
  const { transport, left } = await stalled();
  const answer = await transport.request("GET", "/", READ);
  const read = async () => {
    for await (const _ of withIdleLimit(answer, 50, "read"));
  };
  await expect(read()).rejects.toMatchObject({ kind: "timeout" });
  await left;
});

function socketOf(parts: Partial<TransportSocket>): Transport {
  const socket: TransportSocket = {
    send: async () => undefined,
    receive: async function* () {
      await new Promise(() => undefined);
      yield new Uint8Array();
    },
    closed: new Promise(() => undefined),
    close: () => undefined,
    ...parts,
  };
  return {
    request: () => Promise.reject(new Error("not of this test")),
    socket: async () => socket,
    close: () => undefined,
  };
}

test("events that were told are not kept, however long they are followed", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const told: WeakRef<Uint8Array>[] = [];
  const receive = async function* () {
    for (let n = 0; n < 100; n++) {
      const bytes = utf8(JSON.stringify({ type: "vm_gone", seq: n, vm_id: "vm_x", last_state: "stopped" }));
      told.push(new WeakRef(bytes));
      yield bytes;
    }
    await new Promise(() => undefined);
  };
  const events = followEvents(socketOf({ receive }));
  for (let n = 0; n < 100; n++) await events.next();
  await new Promise(setImmediate);
  collect();
  expect(told.filter((each) => each.deref() !== undefined).length).toBeLessThan(5);
});

test("a job that is left while the guest reads no stdin leaves no connection open", async () => {
  const closed = defer<void>();
  let sent = 0;
  const transport = socketOf({
    // The first frame is taken, and what is written after it by nobody.
    send: () => (sent++ === 0 ? Promise.resolve() : new Promise(() => undefined)),
    close: () => closed.resolve(),
  });
  const open = () => transport.socket("/", [], {});
  const job = new Job(open, { type: "start", kind: "exec", command: "cat" }, async () => undefined, {});
  void job.write("x").catch(() => undefined);
  await expect.poll(() => sent).toBe(2);
  job.detach();
  await closed.promise;
});
