import { type Deferred, defer } from "@capsem/base";
import type { RpcContext } from "@capsem/rpc";
import type { MuxStream } from "@capsem/wire";
import { expect, test } from "vitest";
import { Files } from "./files.ts";
import type { GuestLink } from "./guest-link.ts";
import type { GuestAnswer } from "./guest-requests.ts";
import { type OwnerLife, streamMethods } from "./methods.ts";

/** A guest that answers when it is told to, and the stream of its one transfer. */
function startTransfer() {
  const answer: Deferred<GuestAnswer> = defer();
  const asked = defer<void>();
  const resets: string[] = [];
  const stream = { end: () => undefined, reset: (code: string) => void resets.push(code) };
  const requests = {
    newId: () => "r1",
    ask: () => {
      asked.resolve();
      return answer.promise;
    },
  };
  const bulk = () => ({ open: () => stream as unknown as MuxStream });
  const files = new Files({ requests, bulk } as unknown as GuestLink);
  const life = { machine: () => ({ files }) } as unknown as OwnerLife;
  return { methods: streamMethods(life), answer, asked, resets };
}

const ANSWER: GuestAnswer = { name: "file_answer", body: { id: "r1", total: 5 } };

for (const [method, params] of [
  ["file.read", { path: "large", offset: 0 }],
  ["tree.read", { path: "." }],
] as const) {
  test(`a caller of ${method} that leaves before its answer leaves no stream open in the guest`, async () => {
    const { methods, answer, asked, resets } = startTransfer();
    const caller = new AbortController();
    const context = { signal: caller.signal } as RpcContext;
    const opened = methods[method]?.(params, context).catch(() => undefined);
    await asked.promise;
    caller.abort();
    answer.resolve(ANSWER);
    // Nobody pipes what came: the caller is not there any more.
    await opened;
    expect(resets).toContain("cancelled");
  });

  test(`a caller of ${method} that leaves after its answer, before a byte, leaves no stream open either`, async () => {
    const { methods, answer, resets } = startTransfer();
    const caller = new AbortController();
    answer.resolve(ANSWER);
    await methods[method]?.(params, { signal: caller.signal } as RpcContext);
    expect(resets).toEqual([]);
    caller.abort();
    expect(resets).toEqual(["cancelled"]);
  });
}
