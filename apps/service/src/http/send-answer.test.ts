import { mkdtempSync, rmSync } from "node:fs";
import { createServer, request, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defer } from "@capsem/base";
import { afterEach, expect, test } from "vitest";
import { sendAnswer } from "./send-answer.ts";

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

/** The server's end of an answer that a client waits for, and that client's way to leave. */
async function answered(): Promise<{ response: ServerResponse; leave: () => void; left: Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), "capsem-answer-"));
  const socketPath = join(folder, "s");
  const came = defer<ServerResponse>();
  const server = createServer((_request, response) => came.resolve(response));
  cleanups.push(() => {
    server.close();
    server.closeAllConnections();
    rmSync(folder, { recursive: true, force: true });
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  const outgoing = request({ socketPath, agent: false });
  outgoing.on("error", () => outgoing.destroy());
  outgoing.end();
  const response = await came.promise;
  const left = new Promise<void>((resolve) => response.once("close", resolve));
  return { response, leave: () => outgoing.destroy(), left };
}

for (const kind of ["lines", "bytes"] as const) {
  test(`an answer of ${kind} whose client left before its end is over all the same`, async () => {
    const { response, leave, left } = await answered();
    const pump = async () => {
      leave();
      await left;
    };
    const answer = kind === "lines" ? { kind, pump } : { kind, headers: {}, pump };
    const sent = defer<string>();
    sendAnswer(response, answer).then(
      () => sent.resolve("sent"),
      ({ kind: why }: { kind: string }) => sent.resolve(why),
    );
    const timer = setTimeout(() => sent.resolve("never over"), 5_000);
    expect(await sent.promise).toBe("cancelled");
    clearTimeout(timer);
  });
}
