import { defer } from "@capsem/base";
import { expect, test } from "vitest";
import { Args } from "../args.ts";
import type { Context } from "../context.ts";
import type { Powers } from "../powers.ts";
import { fakePowers } from "../testing/fake-powers.ts";
import { create } from "./create.ts";

/** A create that the service has begun, told to end by a signal. */
async function interrupted(signal: "SIGINT" | "SIGTERM", words: Map<string, string[]>, isHeld = false) {
  const { powers: plain, output, text } = fakePowers({ isTerminal: false });
  const asked = defer<void>();
  let tell: (name: "SIGINT" | "SIGTERM") => void = () => undefined;
  const onSignals: Powers["onSignals"] = (_, listener) => {
    tell = listener;
    return () => undefined;
  };
  const make = () => {
    asked.resolve();
    return new Promise(() => undefined);
  };
  const client = async () => ({ vms: { create: make } });
  const parts = { powers: { ...plain, onSignals }, output, client, json: false, isHeld: () => isHeld };
  const done = create(parts as unknown as Context, new Args([], null, words));
  await asked.promise;
  tell(signal);
  return { code: await done, text: text() };
}

test("who leaves a VM that is being made is told that there may be one", async () => {
  expect(await interrupted("SIGINT", new Map([["name", ["dev"]]]))).toEqual({
    code: 130,
    text: "capsem: the service makes the VM all the same; where it is not wanted: capsem delete dev\n",
  });
  expect(await interrupted("SIGTERM", new Map())).toEqual({
    code: 143,
    text: "capsem: the service makes the VM all the same; where it is not wanted: capsem list, capsem delete VM\n",
  });
});

test("what waited for a person ends with who asked", async () => {
  expect(await interrupted("SIGINT", new Map(), true)).toEqual({ code: 130, text: "" });
});
