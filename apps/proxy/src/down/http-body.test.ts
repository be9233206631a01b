import type { IncomingMessage } from "node:http";
import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { ByteBudget } from "./byte-budget.ts";
import { readBody } from "./http-body.ts";
import { DOWN_LIMITS } from "./limits.ts";

const asRequest = (body: PassThrough) => Object.assign(body, { headers: {} }) as unknown as IncomingMessage;

test.each([
  ["no room", { messageBytesMax: 100 }, 10, "busy"],
  ["a body that is too long", { messageBytesMax: 10 }, 100, "too_large"],
] as const)("after %s nothing that still comes takes room", async (_, limits, budgetBytes, kind) => {
  const body = new PassThrough();
  const budget = new ByteBudget(budgetBytes);
  const read = readBody(asRequest(body), budget, { ...DOWN_LIMITS, ...limits });
  body.write(Buffer.alloc(8));
  body.write(Buffer.alloc(8));
  body.write(Buffer.alloc(1));
  await expect(read).rejects.toMatchObject({ kind });
  expect(budget.usedBytes).toBe(0);
  // As HTTP does with the rest of a body, once the answer has left.
  const ended = new Promise((resolve) => body.once("end", resolve));
  body.end(Buffer.alloc(1));
  body.resume();
  await ended;
  expect(budget.usedBytes).toBe(0);
});
