import { Bug } from "@capsem/base";
import { expect, test } from "vitest";
import { UNSTAMPED_US, writeAgentUs } from "./agent-time.ts";
import { decodeGuestMessage, encodeGuestMessage } from "./control-codec.ts";
import type { GuestMessage } from "./message-table.ts";

type JobEnd = Extract<GuestMessage, { name: "job_done" }>;

function endOf(agent_us: number): JobEnd {
  const counts = { stdout_bytes: 5, stderr_bytes: 70_000 };
  const memory = { out_of_memory: { limit_bytes: 2 ** 31, peak_bytes: 2 ** 30 } };
  return {
    name: "job_done",
    body: { job: "job_1", exit_code: 7, timed_out: false, ...memory, ...counts, agent_us },
  };
}

test.each([0, 1, 127, 128, 65_536, 48_123, UNSTAMPED_US - 1])("a job's end is stamped with %d µs", (us) => {
  const encoded = encodeGuestMessage(endOf(UNSTAMPED_US));
  expect(writeAgentUs(encoded, us)).toBe(us);
  expect(decodeGuestMessage(encoded)).toEqual(endOf(us));
});

test("a time is a whole number that fits, whatever the clock said", () => {
  const stamped = (us: number) => writeAgentUs(encodeGuestMessage(endOf(UNSTAMPED_US)), us);
  expect([stamped(-3), stamped(1_000.4), stamped(2 ** 40)]).toEqual([0, 1_000, UNSTAMPED_US - 1]);
});

test("what is stamped already, or is no job's end, is not touched", () => {
  const stamped = encodeGuestMessage(endOf(UNSTAMPED_US));
  writeAgentUs(stamped, 10);
  const others = [
    stamped,
    encodeGuestMessage({ name: "ack", body: { id: "r1" } }),
    new Uint8Array(4).fill(0xff),
  ];
  for (const bytes of others) {
    const before = bytes.slice();
    expect(() => writeAgentUs(bytes, 20)).toThrow(Bug);
    expect(bytes).toEqual(before);
  }
});
