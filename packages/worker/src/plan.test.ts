import { Readable } from "node:stream";
import { expect, test } from "vitest";
import * as z from "zod";
import { WORKER_LIMITS } from "./limits.ts";
import { type PlanForm, readPlan } from "./plan.ts";

interface Plan {
  readonly kind: string;
  readonly fd: number;
}
const form: PlanForm<Plan> = {
  name: "the worker's plan",
  schema: z.strictObject({ kind: z.string(), fd: z.int() }),
  fault: ({ kind }) => (kind === "mine" ? null : `it is one of a ${kind}`),
};
const read = (...chunks: string[]) =>
  readPlan(Readable.from(chunks.map((chunk) => Buffer.from(chunk))), form);
const LINE = '{"kind":"mine","fd":3}\n';

test("a plan is one line, however it comes, and what is behind it is not read", async () => {
  const plan = { kind: "mine", fd: 3 };
  expect(await read(LINE)).toEqual(plan);
  expect(await read(...LINE)).toEqual(plan);
  expect(await read(`${LINE}not JSON`)).toEqual(plan);
});

test("a plan whose input stays open is taken at the end of its line", async () => {
  const input = new Readable({ read: () => undefined });
  input.push(LINE);
  expect(await readPlan(input, form)).toEqual({ kind: "mine", fd: 3 });
});

test("a character of a plan that comes in two parts is that character", async () => {
  const bytes = Buffer.from('{"kind":"möglich","fd":3}\n');
  const at = bytes.indexOf("ö") + 1;
  const input = Readable.from([bytes.subarray(0, at), bytes.subarray(at)]);
  const asked: string[] = [];
  const fault = ({ kind }: Plan) => {
    asked.push(kind);
    return null;
  };
  await readPlan(input, { ...form, fault });
  expect(asked).toEqual(["möglich"]);
});

test.each([
  ["", "stdin ended early"],
  ['{"kind":"mine","fd":3}', "stdin ended early"],
  ["{\n", "not JSON"],
  ['{"kind":"mine","fd":"3"}\n', /^fd .+/],
  ['{"kind":"other","fd":3}\n', "it is one of a other"],
  [`"${"x".repeat(WORKER_LIMITS.planBytesMax)}`, `over ${WORKER_LIMITS.planBytesMax} bytes`],
])("an input that is no plan for it is refused, with the plan's name and why", async (input, why) => {
  const thrown = await read(input).catch((failure: unknown) => failure);
  expect(thrown).toMatchObject({ kind: "invalid_input" });
  const [, said = ""] = /^Cannot read the worker's plan: (.*)$/.exec((thrown as Error).message) ?? [];
  expect(said).toMatch(why);
});
