import { expect, test } from "vitest";
import { GUEST_LIMITS } from "./limits.ts";
import { TestChild } from "./test-child.ts";
import { Zygote } from "./zygote.ts";
import { ZygotePool } from "./zygote-pool.ts";

/** A pool whose first helpers have been killed, which nobody has heard of yet. */
function poolOf(killed: number) {
  const children: TestChild[] = [];
  const pool = new ZygotePool(
    () => {
      const child = new TestChild();
      const isKilled = children.push(child) <= killed;
      child.control._write = (_chunk, _encoding, done) =>
        done(isKilled ? Object.assign(new Error("write EPIPE"), { code: "EPIPE" }) : null);
      return new Zygote(child.asChild);
    },
    () => true,
    () => undefined,
  );
  return { pool, children };
}

test("a helper that was killed before it got its request is replaced, and the command goes on", async () => {
  const { pool, children } = poolOf(2);
  pool.start();
  expect(await pool.request(new Uint8Array([1]))).toBeInstanceOf(Zygote);
  expect(children.length).toBeGreaterThan(2);
  pool.close();
});

test("where no helper lives for long enough the command fails, and is not tried for ever", async () => {
  const { pool, children } = poolOf(Number.POSITIVE_INFINITY);
  await expect(pool.request(new Uint8Array([1]))).rejects.toMatchObject({ kind: "internal" });
  expect(children.length).toBe(GUEST_LIMITS.zygotesWarm + 1);
  pool.close();
});
