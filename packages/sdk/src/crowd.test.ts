import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { CHANGES_MAX, READS_MAX } from "./limits.ts";
import { createNodeClient } from "./node.ts";

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** A service that answers only when told. */
async function startHolding() {
  const home = mkdtempSync(join(tmpdir(), "sdk-crowd-"));
  mkdirSync(join(home, "run"));
  const held: ServerResponse[] = [];
  const service = { home, held, seen: 0, release: () => held.splice(0).forEach((one) => void one.end("{}")) };
  const server = createServer((_request, response) => {
    service.seen += 1;
    held.push(response);
  });
  await new Promise<void>((resolve) => server.listen(join(home, "run", "service.sock"), resolve));
  closers.push(() => {
    server.close();
    server.closeAllConnections();
    rmSync(home, { recursive: true, force: true });
  });
  return service;
}

test.each([
  ["reads", READS_MAX, false],
  ["changes", CHANGES_MAX, true],
])("of a crowd of %s some are under way, and the others come to their turn", async (_name, max, mutates) => {
  const service = await startHolding();
  const client = createNodeClient({ home: service.home });
  closers.push(() => client.close());
  const call = (signal?: AbortSignal) => {
    const options = signal === undefined ? {} : { signal };
    return mutates ? client.vm("vm_aaaaaaaaaaaaaaaa").stop(options) : client.status(options);
  };
  const abort = new AbortController();
  const crowd = Array.from({ length: max + 10 }, () => call());
  const last = call(abort.signal);
  await expect.poll(() => service.seen).toBe(max);
  abort.abort();
  await expect(last).rejects.toMatchObject({ kind: "cancelled", outcome: "none" });
  expect(service.held).toHaveLength(max);
  service.release();
  await expect.poll(() => service.seen).toBe(max + 10);
  service.release();
  await Promise.all(crowd);
  expect(service.seen).toBe(max + 10);
});
