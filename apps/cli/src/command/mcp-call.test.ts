import { CapsemError } from "@capsem/sdk";
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

/** What is said of a call that its service knows no tool for. */
async function missed(server: string, message: string): Promise<unknown> {
  const refusal = new CapsemError("mcp_tool_not_found", message, { status: 404 });
  const mcp = {
    call: async () => {
      throw refusal;
    },
    servers: async () => [
      { name: "off", state: "disabled", url: "https://off.test/mcp" },
      { name: "on", state: "ok", url: "https://on.test/mcp" },
    ],
  };
  const context = { client: async () => ({ mcp }), output: {}, json: false } as unknown as Context;
  const failed = await call(context, new Args([server, "x"], null, new Map())).catch(
    (thrown: unknown) => thrown,
  );
  return failed === refusal ? "as it came" : failed;
}

const UNKNOWN = 'Cannot find tool "off__x": no server of that name';
test("a call of a server that is switched off, or is not there, says that of the server", async () => {
  expect(await missed("off", UNKNOWN)).toMatchObject({
    kind: "wrong_state",
    message:
      "Cannot call off x: the server is switched off; declare it without --disabled: capsem mcp add off URL",
  });
  expect(await missed("none", UNKNOWN)).toMatchObject({ kind: "mcp_server_not_found", message: UNKNOWN });
  expect(await missed("on", 'Cannot find tool "on__x": on has none of it')).toBe("as it came");
});
