import { connect, createServer, type Socket } from "node:net";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { muxTransport, pump } from "./duplex.ts";
import { createMux } from "./mux.ts";
import type { Mux, MuxStream } from "./types.ts";

async function socketPair(): Promise<[Socket, Socket]> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Failure("no_address", "Cannot listen");
  const accepted = new Promise<Socket>((resolve) => server.once("connection", resolve));
  const client = connect(address.port, "127.0.0.1");
  const socket = await accepted;
  server.close();
  return [client, socket];
}

async function muxPair(
  onOpen: (stream: MuxStream) => void,
): Promise<{ host: Mux; guest: Mux; sockets: Socket[] }> {
  const [left, right] = await socketPair();
  const host = createMux({ role: "host", transport: muxTransport(left), onOpen: () => undefined });
  const guest = createMux({ role: "guest", transport: muxTransport(right), onOpen });
  pump(left, host);
  pump(right, guest);
  return { host, guest, sockets: [left, right] };
}

async function closedOf(socket: Socket): Promise<void> {
  if (!socket.destroyed) await new Promise((resolve) => socket.once("close", resolve));
}

test("sixteen streams echo over a socket whatever their sizes", async () => {
  const { host, guest, sockets } = await muxPair(async (stream) => {
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read())
      await stream.write(chunk);
    stream.end();
  });
  const totals = await Promise.all(
    Array.from({ length: 16 }, async (_, at) => {
      const stream = host.open(1, `s${at}`);
      const sent = Uint8Array.from({ length: 20_000 * at + 1 }, (_, index) => (index * 7 + at) & 255);
      const written = stream.write(sent).then(() => stream.end());
      const parts: Uint8Array[] = [];
      for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) parts.push(chunk);
      await written;
      return Buffer.compare(Buffer.concat(parts), sent);
    }),
  );
  expect(totals).toEqual(Array(16).fill(0));
  expect([host.streamCount, guest.streamCount]).toEqual([0, 0]);
  host.close();
  expect((await guest.ended).kind).toBe("closed");
  await Promise.all(sockets.map(closedOf));
});

test("a socket that breaks ends the mux as lost", async () => {
  const { host, guest, sockets } = await muxPair(() => undefined);
  const stream = host.open(1, "");
  sockets[1]?.destroy();
  await expect(stream.read()).rejects.toMatchObject({ kind: "lane_lost" });
  expect((await host.ended).kind).toBe("lost");
  expect((await guest.ended).kind).toBe("lost");
  await Promise.all(sockets.map(closedOf));
});

test("a violation closes the socket after its reason was sent", async () => {
  const { host, guest, sockets } = await muxPair(() => undefined);
  sockets[1]?.write(new Uint8Array(64));
  expect(await host.ended).toMatchObject({ kind: "violation", message: /length 0/ });
  expect(await guest.ended).toMatchObject({ kind: "lost", message: /protocol_error.*length 0/ });
  await Promise.all(sockets.map(closedOf));
});
