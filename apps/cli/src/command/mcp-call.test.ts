import { expect, test } from "vitest";
import { Args } from "../args.ts";
import type { Context } from "../context.ts";
import { call } from "./mcp-call.ts";

/** A call of a tool `say` of a server `s` that takes one text; what it is given. */
async function given(words: readonly string[], looks: { count: number }, isKnown = true): Promise<unknown> {
  const definition = { inputSchema: { type: "object", properties: { text: { type: "string" } } } };
  let seen: unknown;
  const mcp = {
    tools: async () => {
      looks.count += 1;
      if (!isKnown) throw new Error("no server of that name");
      return [{ name: "say", definition, pin: "pinned" }];
    },
    call: async (request: { arguments: unknown }) => {
      seen = request.arguments;
      return { is_error: false, result: { content: [] } };
    },
  };
  const context = { client: async () => ({ mcp }), output: {}, json: false } as unknown as Context;
  expect(await call(context, new Args(["s", "say"], null, new Map([["arg", words]])))).toBe(0);
  return seen;
}

test("a number for a tool that takes a text is that text; texts alone cost no look at the tool", async () => {
  const looks = { count: 0 };
  expect(await given(["text=5", "n=5"], looks)).toEqual({ text: "5", n: 5 });
  expect(looks.count).toBe(1);
  expect(await given(["text=five"], looks)).toEqual({ text: "five" });
  expect(looks.count).toBe(1);
});

test("where nothing is known of the tool, the call is made, and says what is wrong itself", async () => {
  expect(await given(["text=5"], { count: 0 }, false)).toEqual({ text: 5 });
});
