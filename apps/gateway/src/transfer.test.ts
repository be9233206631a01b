import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { startUpstream, type Upstream } from "./testing/fake-upstream.ts";
import { answerOf, httpClient, readReply } from "./testing/http-client.ts";
import { useProgram } from "./testing/program.ts";
import { tokenPath } from "./token-file.ts";

vi.setConfig({ testTimeout: 120_000 });

const MIB = 1024 * 1024;
const TOTAL_BYTES = 1024 * MIB;
/** Node's own heap and code, and what is between two sockets: far below a body. */
const GROWTH_BYTES_MAX = 96 * MIB;
const FILE = "/vms/vm_abcdefghij234567/files/content?path=a";
const chunk = Buffer.alloc(256 * 1024, 0x5a);

const { newHome, run } = await useProgram();
const upstreams: Upstream[] = [];
afterEach(async () => {
  for (const upstream of upstreams.splice(0)) await upstream.close();
});

async function startBoth() {
  const home = newHome();
  await run("token", "ensure", "--home", home).exited;
  const { child, out } = run("serve", "--home", home, "--allow-unconfined", "--port", "0");
  await expect.poll(out, { timeout: 15_000 }).toContain("\n");
  const upstream = await startUpstream(join(home, "run", "service.sock"));
  upstreams.push(upstream);
  const token = readFileSync(tokenPath(join(home, "run")), "utf8").trim();
  const client = httpClient((JSON.parse(out()) as { port: number }).port, token);
  expect((await client.get("/status")).status).toBe(200);
  const peakBytes = () =>
    Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1]) * 1024;
  return { upstream, client, peakBytes };
}

/** Writes as much as is taken, and no more than the total. */
async function pour(
  to: { write(chunk: Buffer): boolean; once(event: string, listener: () => void): unknown; end(): unknown },
  onWritten: (bytes: number) => void = () => undefined,
): Promise<void> {
  for (let bytes = 0; bytes < TOTAL_BYTES; bytes += chunk.length) {
    onWritten(bytes);
    if (!to.write(chunk)) await new Promise<void>((resolve) => to.once("drain", () => resolve()));
  }
  to.end();
}

test("a gigabyte goes up and comes down in bounded memory", async () => {
  const { upstream, client, peakBytes } = await startBoth();
  const before = peakBytes();
  upstream.onRequest = (request, response) => {
    let bytes = 0;
    request.on("data", (part: Buffer) => {
      bytes += part.length;
    });
    request.on("end", () => response.end(String(bytes)));
  };
  const up = client.begin("PUT", FILE);
  const answer = answerOf(up);
  await pour(up);
  expect(String((await readReply(await answer)).bytes)).toBe(String(TOTAL_BYTES));
  upstream.onRequest = (_request, response) => void pour(response);
  const down = client.begin("GET", FILE);
  down.end();
  let bytes = 0;
  for await (const part of await answerOf(down)) bytes += (part as Buffer).length;
  expect(bytes).toBe(TOTAL_BYTES);
  expect(peakBytes() - before).toBeLessThan(GROWTH_BYTES_MAX);
});

test("a client that does not read holds the service back, and a service that does not read the client", async () => {
  const { upstream, client, peakBytes } = await startBoth();
  const before = peakBytes();
  let written = 0;
  const note = (bytes: number) => {
    written = bytes;
  };
  let held: ServerResponse | null = null;
  upstream.onRequest = (_request, response) => {
    response.on("error", () => undefined);
    void pour(response, note);
  };
  const down = client.begin("GET", FILE);
  down.end();
  (await answerOf(down)).pause();
  await expectStill(() => written);
  expect(written).toBeLessThan(TOTAL_BYTES / 8);
  down.destroy();

  written = 0;
  upstream.onRequest = (_request, response) => {
    held = response;
  };
  const up = client.begin("PUT", FILE);
  up.on("error", () => undefined);
  void pour(up, note);
  await expect.poll(() => held).not.toBeNull();
  await expectStill(() => written);
  expect(written).toBeLessThan(TOTAL_BYTES / 8);
  up.destroy();
  expect(peakBytes() - before).toBeLessThan(GROWTH_BYTES_MAX);
});

/** The figure does not move over several looks in a row: whoever moved it waits. */
async function expectStill(read: () => number): Promise<void> {
  let last = -1;
  let still = 0;
  await expect
    .poll(
      () => {
        still = read() === last && last > 0 ? still + 1 : 0;
        last = read();
        return still;
      },
      { timeout: 20_000 },
    )
    .toBeGreaterThan(5);
}
