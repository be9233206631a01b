import type { Failure } from "@capsem/base";
import type { Borrower, MuxStream } from "@capsem/wire";
import { expect, test } from "vitest";
import { Relay } from "./relay.ts";
import { TestChild } from "./test-child.ts";

function lentStream() {
  let borrower: Borrower | undefined;
  const stream = {
    id: 2,
    lend: (by: Borrower) => {
      borrower = by;
      return 1_000;
    },
    takeBack: () => undefined,
  } as unknown as MuxStream;
  return { stream, revoke: (cause: Failure) => borrower?.revoked(cause) };
}

const WINDOW = { fd: 0, offset: 0, length: 10 };

test("a file that is sent while its relay ends is told so", async () => {
  const child = new TestChild();
  const relay = new Relay(child.asChild);
  const sending = relay.send(lentStream().stream, WINDOW, false);
  child.exit(1);
  await expect(sending).rejects.toMatchObject({ kind: "internal" });
});

test("a file that is sent after its relay has ended, and before its lane has, is told so", async () => {
  const child = new TestChild();
  const relay = new Relay(child.asChild);
  const closed = new Promise((resolve) => relay.output.once("close", resolve));
  child.exit(1);
  await closed;
  await expect(relay.send(lentStream().stream, WINDOW, false)).rejects.toMatchObject({ kind: "internal" });
});
