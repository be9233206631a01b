import { type Deferred, defer } from "@capsem/base";
import type { MuxStream } from "@capsem/wire";
import { expect, test } from "vitest";
import { WithheldOutputs } from "../boundary/withheld-outputs.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { JobStdin } from "./job-stdin.ts";
import { OutputReader } from "./output-reader.ts";

/** An owner that opens a stream when it is told to, and what was reset of it. */
function startRun() {
  const opened: Deferred<void> = defer();
  const asked = defer<void>();
  const resets: string[] = [];
  const stream = {
    read: async () => null,
    write: async () => undefined,
    end: () => undefined,
    reset: (code: string) => void resets.push(code),
  };
  const run = {
    async open() {
      asked.resolve();
      await opened.promise;
      return { result: { offset: 0, truncated: false }, stream: stream as unknown as MuxStream };
    },
    streamFailure: async (thrown: unknown) => thrown,
  };
  return { run: run as unknown as OwnerRun, opened, asked, resets };
}

test("a client that leaves while its way into stdin is opened leaves no stream open", async () => {
  const { run, opened, asked, resets } = startRun();
  const stdin = new JobStdin(run, "job_1");
  const written = stdin.write(new Uint8Array(1)).catch(() => undefined);
  await asked.promise;
  stdin.leave();
  opened.resolve();
  await written;
  expect(resets).toEqual(["cancelled"]);
});

test("a client that leaves while its output is opened leaves no stream open", async () => {
  const { run, opened, asked, resets } = startRun();
  const output = new OutputReader(run, "job_1", 0, new WithheldOutputs());
  const read = output
    .chunks(new AbortController().signal)
    .next()
    .catch(() => undefined);
  await asked.promise;
  output.leave();
  opened.resolve();
  await read;
  expect(resets).toContain("cancelled");
});

test("a client that leaves while its output is judged leaves no stream open when it is free", async () => {
  const { run, opened, resets } = startRun();
  opened.resolve();
  const withheld = new WithheldOutputs();
  const held = withheld.hold(run, "job_1");
  const output = new OutputReader(run, "job_1", 0, withheld);
  const read = output.chunks(new AbortController().signal).next();
  output.leave();
  held.free();
  await expect(read).rejects.toMatchObject({ kind: "cancelled" });
  expect(resets).toEqual(["cancelled"]);
});
