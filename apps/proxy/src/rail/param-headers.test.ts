import { expect, test } from "vitest";
import { railRig } from "../testing/rail-rig.ts";
import { type Serve, said, tool } from "../testing/scripted-servers.ts";
import { MODERN } from "../testing/test-client.ts";

const region = {
  type: "object",
  properties: { region: { type: "string", "x-mcp-header": "Region" }, text: { type: "string" } },
};
const files = { tools: [tool("put", { inputSchema: region }), tool("plain")] };

async function called(
  rig: Awaited<ReturnType<typeof railRig>>,
  paramHeaders: Record<string, string> | undefined,
  args: Record<string, unknown>,
  name = "files__put",
) {
  const options = paramHeaders === undefined ? {} : { transport: "http", paramHeaders };
  const client = rig.client(options as never);
  return client.call(name, args, { _meta: MODERN });
}

test("a call whose headers say other than its arguments is not made, and ends as failed", async () => {
  const rig = await railRig({ servers: { files } });
  const bad: [Record<string, string>, Record<string, unknown>][] = [
    [{}, { region: "eu" }],
    [{ "mcp-param-region": "us" }, { region: "eu" }],
    [{ "mcp-param-region": "=?base64?!!?=" }, { region: "eu" }],
    [{ "mcp-param-region": "eu" }, { text: "x" }],
  ];
  for (const [headers, args] of bad) {
    const { error } = await called(rig, headers, args);
    expect([headers, error?.code]).toEqual([headers, -32_020]);
    // What it says is no way to learn of an argument.
    expect(error?.message).not.toMatch(/\beu\b|\bus\b/);
  }
  await rig.settled();
  expect(rig.aggregator.requests).toEqual([]);
  expect(rig.service.calls.map(({ outcome, error }) => [outcome, error?.split(":")[0]])).toEqual(
    bad.map(() => ["failed", "header_mismatch"]),
  );
});

test("headers that say the same pass, as do calls without any to check", async () => {
  const rig = await railRig({ servers: { files } });
  expect((await called(rig, { "mcp-param-region": "eu" }, { region: "eu" })).error).toBeUndefined();
  expect(
    (await called(rig, { "mcp-param-region": "=?base64?ZXU=?=" }, { region: "eu" })).error,
  ).toBeUndefined();
  expect((await called(rig, {}, { text: "x" })).error).toBeUndefined();
  expect(
    (await called(rig, { "mcp-param-region": "us" }, { region: "eu" }, "files__plain")).error,
  ).toBeUndefined();
  // Frames have no headers.
  expect((await called(rig, undefined, { region: "eu" })).error).toBeUndefined();
});

test("a tool that a rule hides is refused as hidden, whatever the headers", async () => {
  const rig = await railRig({
    servers: { files },
    rules: `[profiles.rules.no]\naction = "block"\nmatch = 'mcp.tool_call.name == "put"'\n`,
  });
  const { error } = await called(rig, { "mcp-param-region": "us" }, { region: "eu" });
  expect([error?.code, error?.data?.rule_id]).toEqual([-32_600, "profiles.rules.no"]);
});

test("a later leg of a call is held to the same", async () => {
  const serve: Serve = async ({ ask }) => {
    await ask("roots/list", {});
    return said("done");
  };
  const rig = await railRig({ servers: { files: { ...files, era: "legacy", serve } } });
  const headers = { "mcp-param-region": "eu" };
  const leg = (paramHeaders: Record<string, string>, more: Record<string, unknown> = {}) =>
    rig
      .client({ transport: "http", taintKey: "http", paramHeaders })
      .call("files__put", { region: "eu" }, { _meta: MODERN, ...more });
  const first = await leg(headers);
  const { requestState } = first.result ?? {};
  const more = { inputResponses: { input_1: { roots: [] } }, requestState };
  expect((await leg({ "mcp-param-region": "us" }, more)).error?.code).toBe(-32_020);
  expect((await leg(headers, more)).result?.resultType).toBe("complete");
});
