/** Real clients of the official SDK, both eras, over a real socket and a lane. */
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Agent, fetch as undiciFetch } from "undici";
import { afterEach, expect, test } from "vitest";
import { dialer } from "./testing/http-guest.ts";
import { bridge, type LaneRig, laneRig, until } from "./testing/lane-rig.ts";

const clean: (() => unknown)[] = [];
afterEach(async () => {
  for (const done of clean.splice(0).reverse()) await done();
});

type Options = ConstructorParameters<typeof Client>[1];

async function sdkClient(
  rig: LaneRig,
  options: Options,
): Promise<{ client: Client; transport: StreamableHTTPClientTransport }> {
  const { port, close } = await bridge(rig);
  clean.push(close);
  const agent = new Agent({ connect: dialer(port) as never });
  clean.push(() => agent.destroy());
  const fetch = ((url: string, init: object) => undiciFetch(url, { ...init, dispatcher: agent })) as never;
  const transport = new StreamableHTTPClientTransport(new URL("http://mcp.capsem.internal/mcp"), { fetch });
  const client = new Client({ name: "sdk", version: "1" }, options);
  await client.connect(transport);
  clean.push(() => client.close());
  return { client, transport };
}

const firstText = (result: unknown) => (result as { content: { text: string }[] }).content[0]?.text;

test("a client of the old era: session, call, progress, sampling, list_changed, end", async () => {
  const rig = laneRig();
  const { client, transport } = await sdkClient(rig, { capabilities: { sampling: {} } });
  expect(transport.sessionId).toBe("session-1");
  client.setRequestHandler("sampling/createMessage", async () => ({
    model: "m",
    role: "assistant" as const,
    content: { type: "text" as const, text: "sampled" },
  }));
  let changes = 0;
  client.setNotificationHandler("notifications/tools/list_changed", () => {
    changes += 1;
  });
  expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(["echo"]);
  expect(firstText(await client.callTool({ name: "echo", arguments: { text: "hi" } }))).toBe("hi");

  const seen: number[] = [];
  const onprogress = ({ progress }: { progress: number }) => seen.push(progress);
  expect(firstText(await client.callTool({ name: "progress" }, { onprogress }))).toBe("true");
  expect(seen).toEqual([1]);
  expect(firstText(await client.callTool({ name: "sample" }))).toContain("sampled");
  expect(firstText(await client.callTool({ name: "large", arguments: { chars: 3_000_000 } }))).toHaveLength(
    3_000_000,
  );
  const text = "y".repeat(3_000_000);
  expect(firstText(await client.callTool({ name: "echo", arguments: { text } }))).toHaveLength(text.length);

  // The SDK opens its GET stream on its own time.
  const deadline = performance.now() + 5_000;
  while (changes === 0 && performance.now() < deadline) await client.callTool({ name: "announce" });
  // Another may be on its way when the first is heard.
  expect(changes).toBeGreaterThan(0);
  await transport.terminateSession();
  await until(() => rig.door.http.sessionCount === 0, "the session is over");
});

test("a client of the old era cancels by signal, and the call ends", async () => {
  const rig = laneRig();
  const { client } = await sdkClient(rig, {});
  const stop = new AbortController();
  const hung = client.callTool({ name: "hang" }, { signal: stop.signal });
  const failed = hung.then(
    () => "answered",
    () => "failed",
  );
  const deadline = performance.now() + 5_000;
  while (rig.rail.running.size === 0 && performance.now() < deadline)
    await new Promise((r) => setImmediate(r));
  stop.abort();
  expect(await failed).toBe("failed");
  while (rig.rail.cancelled.length === 0 && performance.now() < deadline)
    await new Promise((r) => setImmediate(r));
  expect(rig.rail.cancelled).toHaveLength(1);
});

test("a client of the new era: discover, list, call, progress, cancel, no session", async () => {
  const rig = laneRig();
  const { client, transport } = await sdkClient(rig, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  expect((await client.listTools()).tools).toHaveLength(1);
  expect(firstText(await client.callTool({ name: "echo", arguments: { text: "modern" } }))).toBe("modern");
  const seen: number[] = [];
  const onprogress = ({ progress }: { progress: number }) => seen.push(progress);
  expect(firstText(await client.callTool({ name: "progress" }, { onprogress }))).toBe("true");
  expect(seen).toEqual([1]);
  expect(transport.sessionId).toBeUndefined();
  expect(rig.rail.clients.every(({ protocolHint }) => protocolHint === "2026-07-28")).toBe(true);

  const stop = new AbortController();
  const failed = client.callTool({ name: "hang" }, { signal: stop.signal }).then(
    () => "answered",
    () => "failed",
  );
  const deadline = performance.now() + 5_000;
  while (rig.rail.running.size === 0 && performance.now() < deadline)
    await new Promise((r) => setImmediate(r));
  stop.abort();
  expect(await failed).toBe("failed");
  while (rig.rail.cancelled.length === 0 && performance.now() < deadline)
    await new Promise((r) => setImmediate(r));
  expect(rig.rail.cancelled).toHaveLength(1);
});

test("a client that finds out for itself settles on the new era", async () => {
  const rig = laneRig();
  const { client } = await sdkClient(rig, { versionNegotiation: { mode: "auto" } });
  expect(firstText(await client.callTool({ name: "echo", arguments: { text: "auto" } }))).toBe("auto");
  expect(rig.rail.methods()).not.toContain("initialize");
});
