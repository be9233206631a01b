import { Failure, Slots } from "@capsem/base";
import { expect, test } from "vitest";
import { admit } from "./admission.ts";
import type { LeaseEnd } from "./lease.ts";

const ASKED = { server: "docs", url: "https://a.test/", method: "POST", headers: [] };
const ADMITTED = { lease_ms: 1, addresses: [], headers: [], secrets: [], event_id: "0" };

/** What is said to have ended of an admission that the service answers so. */
async function endsOf(answer: (lease: string) => unknown): Promise<LeaseEnd[]> {
  const ends: LeaseEnd[] = [];
  const parts = {
    call: async (_: string, params: unknown) => answer((params as { lease: string }).lease),
    done: (end: LeaseEnd) => void ends.push(end),
    slots: new Slots(1, 1),
    newLease: () => "lease_1",
  };
  const asked = admit(parts, "aggregator:host", { ...ASKED, traceId: null, timeoutMs: null }, undefined);
  await asked.catch(() => undefined);
  return ends;
}

const refuse = (kind: string) => () => {
  throw new Failure(kind, "no");
};

test.each(["cancelled", "timeout", "internal"])(
  "an admission whose answer is lost (%s) is ended by its name",
  async (kind) => {
    expect(await endsOf(refuse(kind))).toMatchObject([{ lease: "lease_1", error: "cancelled" }]);
  },
);

test("so is one whose answer cannot be read; one that is refused or given has nothing to end", async () => {
  expect(await endsOf(() => ({}))).toMatchObject([{ lease: "lease_1" }]);
  expect(await endsOf(refuse("policy"))).toEqual([]);
  expect(await endsOf((lease) => ({ ...ADMITTED, lease }))).toEqual([]);
});
