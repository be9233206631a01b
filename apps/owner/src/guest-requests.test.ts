import { Failure } from "@capsem/base";
import type { HostMessage } from "@capsem/wire";
import { expect, test } from "vitest";
import { GuestRequests } from "./guest-requests.ts";

function connected() {
  const sent: HostMessage[] = [];
  const requests = new GuestRequests("r");
  requests.connect(async (message) => {
    sent.push(message);
  });
  return { requests, sent };
}

test("an answer goes to the request with its id", async () => {
  const { requests, sent } = connected();
  const first = requests.ask("thaw", {});
  const second = requests.ask("shutdown", {});
  expect(sent.map(({ name }) => name)).toEqual(["thaw", "shutdown"]);
  requests.settle({ name: "ack", body: { id: "r2" } });
  requests.settle({ name: "ack", body: { id: "r1" } });
  expect((await first).body.id).toBe("r1");
  expect((await second).body.id).toBe("r2");
});

test("an error answer rejects with the guest's kind", async () => {
  const { requests } = connected();
  const asked = requests.ask("file_stat", { path: "x", follow: false });
  requests.settle({ name: "error", body: { id: "r1", kind: "file_not_found", message: "gone" } });
  await expect(asked).rejects.toMatchObject({ kind: "file_not_found", message: "gone" });
});

test("a lost guest ends every waiting request and refuses new ones", async () => {
  const { requests } = connected();
  const asked = requests.ask("thaw", {});
  requests.disconnect(new Failure("guest_lost", "Cannot go on: the guest ended"));
  await expect(asked).rejects.toMatchObject({ kind: "guest_lost" });
  await expect(requests.ask("thaw", {})).rejects.toMatchObject({ kind: "guest_lost" });
});

test("an unanswered request ends at its deadline, an aborted one at once", async () => {
  const { requests } = connected();
  await expect(requests.ask("thaw", {}, { timeoutMs: 5 })).rejects.toMatchObject({ kind: "unresponsive" });
  const abort = new AbortController();
  const asked = requests.ask("thaw", {}, { signal: abort.signal });
  abort.abort();
  await expect(asked).rejects.toMatchObject({ kind: "cancelled" });
});

test("an answer to nothing is dropped", () => {
  const { requests } = connected();
  expect(requests.settle({ name: "ack", body: { id: "stranger" } })).toBe(true);
  expect(requests.settle({ name: "pong", body: { sequence: 1, clock_ms: 1 } })).toBe(false);
});
