import { expect, test, vi } from "vitest";
import { httpServer, sendJson } from "../testing/http-server.ts";
import { oneServer } from "../testing/one-server.ts";

const text = (name: unknown, type = "string") => ({ type, "x-mcp-header": name });

test("a call whose headers are of an older definition is made once more with those of the new one, and once only", async () => {
  let name = "Old";
  const calls: Record<string, unknown>[] = [];
  const server = await httpServer(({ request, response, message }) => {
    const answer = (result: unknown) => sendJson(response, { jsonrpc: "2.0", id: message.id, result });
    if (message.method === "server/discover") {
      return answer({
        supportedVersions: ["2026-07-28"],
        capabilities: { tools: {} },
        resultType: "complete",
      });
    }
    const bad = { name: "bad", inputSchema: { properties: { a: text("not a token") } } };
    const good = { name: "t", inputSchema: { properties: { a: text(name) } } };
    if (message.method === "tools/list") return answer({ tools: [bad, good] });
    calls.push(request.headers);
    if (request.headers[`mcp-param-${name.toLowerCase()}`] === "x") return answer({});
    const error = { code: -32020, message: "Header mismatch" };
    response.writeHead(400, { "content-type": "application/json" });
    response.end(JSON.stringify({ jsonrpc: "2.0", id: message.id, error }));
  });
  const one = oneServer(server.url);
  const catalog = await one.upstream.catalog(false, new AbortController().signal);
  expect(catalog.tools.map((each) => JSON.parse(each).name)).toEqual(["t"]);
  const params = { name: "t", arguments: { a: "x" } };
  expect((await one.call({ params }).outcome).kind).toBe("result");
  expect(calls[0]).toMatchObject({
    "mcp-method": "tools/call",
    "mcp-name": "t",
    "mcp-param-old": "x",
    "mcp-protocol-version": "2026-07-28",
  });
  name = "New";
  expect((await one.call({ params }).outcome).kind).toBe("result");
  expect(calls).toHaveLength(3);
  const refused = await one.call({ params: { name: "t", arguments: {} } }).outcome;
  expect([refused.kind, JSON.parse(refused.text).code, calls.length]).toEqual(["error", -32020, 5]);
  await vi.waitFor(() => expect(one.upstream.load.calls).toBe(0));
});
