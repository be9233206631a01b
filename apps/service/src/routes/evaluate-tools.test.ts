import type { McpToolInfo } from "@capsem/api";
import { expect, test } from "vitest";
import { useToolRigs } from "../testing/worker-rig.ts";

const startTools = useToolRigs();

test("rules evaluate of a tool of a declared server says what mcp tools says of its calls", async () => {
  const { rig, workers } = await startTools();
  const { client } = rig;
  await client.put("/mcp/servers/shop", { url: "https://shop.example/mcp" });
  workers.tools([{ name: "buy" }]);
  await client.post("/mcp/servers/shop/refresh", {});
  const listed = (await client.get("/mcp/servers/shop/tools")).json<{ tools: McpToolInfo[] }>().tools;
  expect(listed).toMatchObject([{ name: "buy", decision: "allow" }]);
  const fields = { "mcp.server.name": "shop", "mcp.tool_call.name": "buy" };
  const reply = await client.post("/rules/evaluate", { event: { type: "mcp.tool_call", fields } });
  expect(reply.json(), reply.bytes.toString()).toMatchObject({
    decision: { action: "allow", rule_id: listed[0]?.rule_id },
    text: expect.stringMatching(/filled in .*mcp\.server\.external=true, mcp\.server\.pinned=true/),
  });
});
