import { createConnection } from "node:net";
import { expect, test } from "vitest";
import { WebSocket } from "ws";
import type { Rig } from "./testing/rig.ts";
import { createVm, errorOf, useRigs } from "./testing/use-rigs.ts";

const rigWith = useRigs();

interface Message {
  type: string;
  job_id: string;
  offset: number;
  exit_code: number | null;
  signal: number | null;
  error?: { kind: string };
}

/** A client of capsem.stream.v1 that keeps all it gets. */
class StreamClient {
  readonly socket: WebSocket;
  readonly messages: Message[] = [];
  readonly output = { 1: "", 2: "" };
  outputBytes = 0;
  readonly closed: Promise<{ code: number; reason: string }>;

  constructor(rig: Rig, id: string, protocols = ["capsem.stream.v1"]) {
    this.socket = new WebSocket(`ws://localhost/vms/${id}/stream`, protocols, {
      createConnection: () => createConnection(rig.layout.socket),
    });
    this.socket.on("error", () => undefined);
    this.closed = new Promise((resolve) => {
      this.socket.on("close", (code, reason) => resolve({ code, reason: reason.toString() }));
    });
    this.socket.on("message", (data: Buffer) => {
      const [kind] = data;
      if (kind === 4) this.messages.push(JSON.parse(data.subarray(1).toString()) as Message);
      if (kind !== 1 && kind !== 2) return;
      this.outputBytes += data.length - 1;
      if (this.output[kind].length < 10_000) this.output[kind] += data.subarray(1).toString();
    });
  }

  async opened(): Promise<this> {
    await new Promise((resolve) => this.socket.once("open", resolve));
    return this;
  }

  send(kind: number, body: string | Buffer | object): void {
    const bytes =
      typeof body === "string" || Buffer.isBuffer(body)
        ? Buffer.from(body)
        : Buffer.from(JSON.stringify(body));
    this.socket.send(Buffer.concat([Buffer.of(kind), bytes]));
  }

  async got(type: string): Promise<Message> {
    await expect
      .poll(() => this.messages.some((message) => message.type === type), { timeout: 30_000 })
      .toBe(true);
    return this.messages.find((message) => message.type === type) as Message;
  }
}

test("a command is fed, answers and ends", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const client = await new StreamClient(rig, id).opened();
  client.send(3, { type: "start", kind: "exec", command: "cat; echo no >&2; exit 4", stdin: true });
  client.send(0, "hel");
  client.send(0, "lo");
  client.send(3, { type: "close_stdin" });
  expect(await client.got("exit")).toMatchObject({ exit_code: 4 });
  expect(client.output).toEqual({ 1: "hello", 2: "no\n" });
  expect(await client.got("started")).toMatchObject({ offset: 0 });
  expect((await client.closed).code).toBe(1000);
});

test("much output arrives whole in frames of the allowed size", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const client = await new StreamClient(rig, id).opened();
  let frameBytesMax = 0;
  client.socket.on("message", (data: Buffer) => {
    frameBytesMax = Math.max(frameBytesMax, data.length);
  });
  client.send(3, { type: "start", kind: "exec", argv: ["head", "-c", "5000000", "/dev/zero"] });
  await client.got("exit");
  expect(client.outputBytes).toBe(5_000_000);
  expect(frameBytesMax).toBeLessThanOrEqual(262_144);
});

test("a job outlives its client, which attaches again, signals and sees the end", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const first = await new StreamClient(rig, id).opened();
  first.send(3, {
    type: "start",
    kind: "exec",
    command: "echo one; read x; echo got $x; sleep 300",
    stdin: true,
  });
  const { job_id } = await first.got("started");
  await expect.poll(() => first.output[1], { timeout: 30_000 }).toBe("one\n");
  first.socket.terminate();

  const second = await new StreamClient(rig, id).opened();
  second.send(3, { type: "attach", job_id, offset: 2 });
  second.send(0, "two\n");
  await expect.poll(() => second.output[1], { timeout: 30_000 }).toBe("e\ngot two\n");
  expect(await second.got("started")).toMatchObject({ job_id, offset: 2 });
  second.send(3, { type: "resize", terminal: { cols: 100, rows: 30 } });
  second.send(3, { type: "signal", signal: 9 });
  expect(await second.got("exit")).toMatchObject({ exit_code: null, signal: 9 });
});

test("a terminal has its size before its first byte, and a shell when no command is given", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const client = await new StreamClient(rig, id).opened();
  client.send(3, { type: "start", kind: "terminal", terminal: { cols: 123, rows: 45 } });
  client.send(0, "echo size $COLUMNS; exit 5\n");
  expect(await client.got("exit")).toMatchObject({ exit_code: 5 });
  expect(client.output[1]).toContain("size 123");
});

test("the end of the VM is told before the close", async () => {
  const rig = await rigWith();
  const id = await createVm(rig, { name: "doomed" });
  const client = await new StreamClient(rig, id).opened();
  client.send(3, { type: "start", kind: "exec", argv: ["sleep", "300"] });
  await client.got("started");
  await rig.client.delete(`/vms/${id}/delete`);
  expect((await client.got("error")).error?.kind).toBe("vm_gone");
  expect((await client.closed).code).toBe(1011);
});

test("refusals before the upgrade are HTTP errors", async () => {
  const rig = await rigWith();
  const status = (client: StreamClient) =>
    new Promise((resolve) =>
      client.socket.on("unexpected-response", (_request, reply) => resolve(reply.statusCode)),
    );
  expect(await status(new StreamClient(rig, "vm_aaaaaaaaaaaaaaaa"))).toBe(404);
  expect(await status(new StreamClient(rig, "bad"))).toBe(400);
  expect(await status(new StreamClient(rig, "vm_aaaaaaaaaaaaaaaa", ["other"]))).toBe(400);
});

test("violations close the socket with a code, and the VM goes on", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const start = { type: "start", kind: "exec", argv: ["sleep", "300"] };
  const cases: { what: string; send: (client: StreamClient) => void; code: number }[] = [
    { what: "an empty frame", send: (client) => client.socket.send(Buffer.alloc(0)), code: 1002 },
    { what: "a text frame", send: (client) => client.socket.send("text"), code: 1003 },
    { what: "an unknown kind", send: (client) => client.send(9, "x"), code: 1002 },
    { what: "stdin before start", send: (client) => client.send(0, "x"), code: 1002 },
    { what: "a server's kind", send: (client) => client.send(1, "x"), code: 1002 },
    { what: "no JSON", send: (client) => client.send(3, "{"), code: 1002 },
    { what: "an unknown message", send: (client) => client.send(3, { type: "dance" }), code: 1002 },
    { what: "too large", send: (client) => client.send(0, Buffer.alloc(262_144)), code: 1009 },
    {
      what: "a second start",
      send: (client) => {
        client.send(3, start);
        client.send(3, start);
      },
      code: 1002,
    },
    {
      what: "a server's kind later",
      send: (client) => {
        client.send(3, start);
        client.send(4, "{}");
      },
      code: 1002,
    },
  ];
  for (const { what, send, code } of cases) {
    const client = await new StreamClient(rig, id).opened();
    send(client);
    expect((await client.closed).code, what).toBe(code);
  }
  const unknown = await new StreamClient(rig, id).opened();
  unknown.send(3, { type: "attach", job_id: "job_aaaaaaaaaaaaaaaa", offset: 0 });
  expect((await unknown.got("error")).error?.kind).toBe("job_not_found");
  expect((await rig.client.post(`/vms/${id}/exec`, { argv: ["true"] })).json()).toMatchObject({
    exit_code: 0,
  });
});

test("job output is read from an offset, and a job is signalled by its route", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const client = await new StreamClient(rig, id).opened();
  client.send(3, { type: "start", kind: "exec", command: "echo out; sleep 300" });
  const { job_id } = await client.got("started");
  await expect.poll(() => client.output[1], { timeout: 30_000 }).toBe("out\n");
  const output = await rig.client.get(`/vms/${id}/jobs/${job_id}/output?offset=1`);
  expect(output.bytes).toEqual(Buffer.from([1, 0, 0, 0, 3, ...Buffer.from("ut\n")]));
  expect((await rig.client.post(`/vms/${id}/jobs/${job_id}/signal`, { signal: 15 })).status).toBe(200);
  expect(await client.got("exit")).toBeTruthy();
  const missing = await rig.client.get(`/vms/${id}/jobs/job_aaaaaaaaaaaaaaaa/output`);
  expect(errorOf(missing)).toMatchObject({ kind: "job_not_found", status: 404 });
});
