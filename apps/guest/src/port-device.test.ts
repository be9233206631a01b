import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openAsPipe, openPort, openWithCat, type Port } from "./port-device.ts";

let dir = "";
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "capsem-port-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

/** A FIFO opened for both directions gives back what was written to it, as a port with an echoing host. */
function makeLoop(): string {
  const path = join(dir, "loop");
  execFileSync("mkfifo", [path]);
  return path;
}

async function echoes({ input, output }: Port, bytes: Buffer): Promise<boolean> {
  const parts: Buffer[] = [];
  let length = 0;
  const all = new Promise<void>((resolve) => {
    input.on("data", (chunk: Buffer) => {
      parts.push(chunk);
      length += chunk.length;
      if (length >= bytes.length) resolve();
    });
  });
  output.write(bytes);
  await all;
  return Buffer.concat(parts).equals(bytes);
}

const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 13) & 255));

test("a device is driven by a pipe handle", async () => {
  const port = openAsPipe(makeLoop());
  if (port === undefined) throw new Error("this Node gives no pipe handle");
  expect(await echoes({ input: port, output: port }, bytes)).toBe(true);
  port.destroy();
  await once(port, "close");
});

test("a device is driven by two cat where there is no pipe handle", async () => {
  const port = openWithCat(makeLoop());
  // It ends with an error when it is destroyed: what matters is that it ends.
  port.on("error", () => undefined);
  const closed = new Promise((resolve) => port.once("close", resolve));
  expect(await echoes({ input: port, output: port }, bytes)).toBe(true);
  port.destroy();
  await closed;
});

test("a socket in the device's place is connected, and its end is seen", async () => {
  const path = join(dir, "socket");
  const server = createServer((socket) => socket.end("bye"));
  server.listen(path);
  await once(server, "listening");
  const { input, output } = openPort(path);
  input.resume();
  await once(output, "close");
  server.close();
});

test("a place with nothing in it is an error of the system", () => {
  expect(() => openPort(join(dir, "nothing"))).toThrow(/ENOENT/);
});
