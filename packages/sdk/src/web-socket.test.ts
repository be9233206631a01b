import { expect, test } from "vitest";
import { UnexplainedRefusal } from "./open-socket.ts";
import type { TransportSocket } from "./transport.ts";
import { openNativeSocket, type WebSocketLike } from "./web-socket.ts";

type Handler<E> = ((event: E) => unknown) | null;

/** A browser's WebSocket whose other end is the test. */
class BrowserSocket implements WebSocketLike {
  static last: BrowserSocket | null = null;
  binaryType = "blob";
  readyState = 0;
  bufferedAmount = 0;
  onopen: Handler<unknown> = null;
  onclose: Handler<{ code: number; reason: string }> = null;
  onerror: Handler<unknown> = null;
  onmessage: Handler<{ data: ArrayBuffer | string }> = null;
  readonly sent: number[] = [];
  readonly closes: (number | undefined)[] = [];
  readonly protocols: readonly string[];

  constructor(_url: string, protocols: string[]) {
    this.protocols = protocols;
    BrowserSocket.last = this;
  }

  send(data: Uint8Array): void {
    this.sent.push(data.length);
    this.bufferedAmount += data.length;
  }

  close(code?: number): void {
    this.closes.push(code);
  }

  open(): void {
    this.readyState = 1;
    this.onopen?.({});
  }

  end(code: number, reason = ""): void {
    this.readyState = 3;
    this.onclose?.({ code, reason });
  }
}

function begin(options: { signal?: AbortSignal; timeoutMs?: number } = {}): {
  opening: Promise<TransportSocket>;
  native: BrowserSocket;
} {
  const opening = openNativeSocket(BrowserSocket, "ws://127.0.0.1/x", ["a", "b"], options);
  if (BrowserSocket.last === null) throw new Error("it was not made");
  return { opening, native: BrowserSocket.last };
}

async function opened(): Promise<{ socket: TransportSocket; native: BrowserSocket }> {
  const { opening, native } = begin();
  native.open();
  return { socket: await opening, native };
}

test("messages come in order, text as UTF-8, also those that came with the opening", async () => {
  const { opening, native } = begin();
  expect([native.protocols, native.binaryType]).toEqual([["a", "b"], "arraybuffer"]);
  native.open();
  native.onmessage?.({ data: new Uint8Array([1, 2]).buffer });
  const socket = await opening;
  native.onmessage?.({ data: "ü" });
  native.end(1000, "done");
  const messages: number[][] = [];
  for await (const bytes of socket.receive()) messages.push([...bytes]);
  expect(messages).toEqual([
    [1, 2],
    [195, 188],
  ]);
  expect(await socket.closed).toEqual({ code: 1000, reason: "done" });
});

test("a reader that is too far behind loses the connection, and gets what waited", async () => {
  const { socket, native } = await opened();
  const part = new Uint8Array(1024 * 1024).buffer;
  for (let at = 0; at < 40; at += 1) native.onmessage?.({ data: part });
  expect(native.closes).toEqual([4000]);
  expect((await socket.closed).reason).toMatch(/behind/);
  let bytes = 0;
  for await (const message of socket.receive()) bytes += message.length;
  expect(bytes).toBe(17 * 1024 * 1024);
});

test("a send waits while too much is unsent, and not for a connection that ended", async () => {
  const { socket, native } = await opened();
  let done = 0;
  const count = () => {
    done += 1;
  };
  const first = socket.send(new Uint8Array(2_000_000)).then(count);
  await Promise.resolve();
  expect(done).toBe(0);
  native.bufferedAmount = 0;
  await first;
  const second = socket.send(new Uint8Array(2_000_000)).then(count);
  native.end(1006);
  await second;
  await expect(socket.send(new Uint8Array(1))).rejects.toMatchObject({
    kind: "unavailable",
    outcome: "unknown",
  });
});

test("a socket that never opens is refused without a reason, late or cancelled", async () => {
  const refused = begin();
  refused.native.end(1006);
  await expect(refused.opening).rejects.toBeInstanceOf(UnexplainedRefusal);
  await expect(begin({ timeoutMs: 1 }).opening).rejects.toMatchObject({ kind: "timeout" });
  const abort = new AbortController();
  const cancelled = begin({ signal: abort.signal });
  abort.abort();
  await expect(cancelled.opening).rejects.toMatchObject({ kind: "cancelled" });
  expect(cancelled.native.closes).toHaveLength(1);
});
