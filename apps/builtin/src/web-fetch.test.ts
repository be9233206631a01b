import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { type WebParts, webFetch } from "./web-fetch.ts";

/** What becomes of a fetch whose request is refused so. */
async function refusedWith(refusal: Failure): Promise<unknown> {
  const fetch = async () => {
    throw refusal;
  };
  const parts = { http: { fetch }, reader: {} } as unknown as WebParts;
  const asked = { url: "https://example.com:8443/a", method: "GET", accept: "*/*", readsBody: true } as const;
  const { signal } = new AbortController();
  return await webFetch(parts, { ...asked, timeoutMs: 60_000, traceId: null, signal }).catch(
    (thrown: unknown) => thrown,
  );
}

test("a host that may not be reached is named, and nothing is said of who dials", async () => {
  const facts = { rule_id: "profiles.rules.x" };
  const refusal = new Failure("policy", "Cannot dial for builtin: blocked by profiles.rules.x", {
    facts,
    retryable: true,
  });
  expect(await refusedWith(refusal)).toMatchObject({
    kind: "policy",
    message: "Cannot fetch from example.com:8443: blocked by profiles.rules.x",
    facts,
    retryable: true,
    cause: refusal,
  });
});

test("any other refusal is passed on as it is", async () => {
  const refusal = new Failure("unreachable", "Cannot fetch from example.com: nothing listens there");
  expect(await refusedWith(refusal)).toBe(refusal);
});
