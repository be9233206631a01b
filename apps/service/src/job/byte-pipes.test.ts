import { defer } from "@capsem/base";
import { encodeMessagePack, type MuxStream } from "@capsem/wire";
import { expect, test } from "vitest";
import type { OwnerRun } from "../owner/owner-run.ts";
import { pipeUp } from "./byte-pipes.ts";

const run = { streamFailure: async (thrown: unknown) => thrown } as unknown as OwnerRun;

/** An upload that would go on for ever, and whether whoever took it let go of it. */
function endless() {
  const state = { isReturned: false };
  async function* chunks() {
    try {
      for (;;) yield new Uint8Array(10);
    } finally {
      state.isReturned = true;
    }
  }
  return { state, chunks: chunks() };
}

/** A stream to an owner that answers at once, or never, and takes what `write` does. */
function streamOf(answer: unknown, write: () => Promise<void>): MuxStream {
  const parts = answer === null ? [] : [encodeMessagePack(answer), null];
  const never = defer<Uint8Array | null>();
  const stream = {
    read: async () => (parts.length === 0 ? never.promise : (parts.shift() ?? null)),
    write,
    end: () => undefined,
    reset: () => never.resolve(null),
  };
  return stream as unknown as MuxStream;
}

test("an upload that the owner refuses in its middle lets go of the client's request", async () => {
  const { state, chunks } = endless();
  const refusal = { error: { kind: "disk_full", message: "Cannot write: no space" } };
  const pause = () => new Promise<void>((resolve) => setImmediate(resolve));
  await expect(pipeUp(run, streamOf(refusal, pause), chunks)).rejects.toMatchObject({ kind: "disk_full" });
  expect(state.isReturned).toBe(true);
});

test("an upload whose owner is lost lets go of the client's request", async () => {
  const { state, chunks } = endless();
  const lost = new Error("the lane is lost");
  const write = () => Promise.reject(lost);
  await expect(pipeUp(run, streamOf(null, write), chunks)).rejects.toBe(lost);
  expect(state.isReturned).toBe(true);
});
