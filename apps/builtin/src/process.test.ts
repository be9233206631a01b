import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { readRecords } from "@capsem/mcp-protocol";
import { native } from "@capsem/native";
import type { Peer } from "@capsem/rpc";
import { expect, onTestFinished, test, vi } from "vitest";
import { type BuiltinProcess, startBuiltin } from "./testing/builtin-process.ts";
import { page, startWeb, type ToolResult } from "./testing/rig.ts";

vi.setConfig({ testTimeout: 60_000 });

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable) console.log("skipped: the builtin tools as a process, because this kernel has no Landlock");
const confined = test.skipIf(!usable);

async function started(): Promise<BuiltinProcess> {
  const builtin = startBuiltin();
  onTestFinished(async () => {
    builtin.kill();
    await builtin.exited;
  });
  await builtin.ready;
  return builtin;
}

async function call(peer: Peer, name: string, args: object): Promise<ToolResult> {
  const params = {
    ...{ server: "local", method: "tools/call", params: JSON.stringify({ name, arguments: args }) },
    ...{ timeout_ms: 30_000, client: { sampling: false, elicitation: false, roots: false } },
  };
  const { stream } = await peer.open("server.request", params, { timeoutMs: 30_000 });
  stream.end();
  for await (const { text } of readRecords(stream, ["result"])) return JSON.parse(text) as ToolResult;
  throw new Error("no record came");
}

confined(
  "sealed, it fetches, converts in a thread, searches and decompresses by what it was granted",
  async () => {
    const builtin = await started();
    expect((await builtin.ready).unconfined).toEqual([]);
    const html = "<html><head><title>T</title></head><body><h1>Hello</h1><p>wörld</p></body></html>";
    const web = await startWeb({
      "/": page("text/html; charset=iso-8859-1", Buffer.from(html, "latin1")),
      "/gz": page("application/json", gzipSync('{"a":1}'), { "content-encoding": "gzip" }),
      "/jis": page("text/plain; charset=shift_jis", Uint8Array.of(0x93, 0xfa, 0x96, 0x7b)),
      "/zst": page("text/plain", Buffer.from("28b52ffd0038290000616263646565", "hex").subarray(0, 14), {
        "content-encoding": "zstd",
      }),
    });
    const proxy = builtin.grantProxy(1);
    const echoed = await call(proxy, "echo", { text: "before anybody dials" });
    expect(echoed.content[0]?.text).toBe("before anybody dials");
    // It waits for the one that dials.
    const waiting = call(proxy, "fetch_http", { url: web.url });
    builtin.grantEgress(1);
    expect((await waiting).content[0]?.text).toBe("# Hello\n\nwörld");
    const article = await call(proxy, "fetch_http", { url: web.url, format: "content" });
    expect(article.content[0]?.text).toContain("wörld");
    expect((await call(proxy, "fetch_http", { url: `${web.url}/gz` })).content[0]?.text).toBe('{"a":1}');
    expect((await call(proxy, "fetch_http", { url: `${web.url}/jis` })).content[0]?.text).toBe("日本");
    expect((await call(proxy, "fetch_http", { url: `${web.url}/zst` })).content[0]?.text).toBe("abcde");
    const found = await call(proxy, "grep_http", { url: web.url, pattern: "^# h", ignore_case: true });
    expect(found.content[0]?.text).toBe("1:# Hello");
    expect(await builtin.end()).toEqual({ code: 0, signal: null });
    expect(builtin.log()).toContain('"builtin ended"');
    expect(builtin.log()).not.toContain('"error"');
  },
);

confined("a neighbour of a newer generation takes the place of one that is gone or is not", async () => {
  const builtin = await started();
  const web = await startWeb({ "/": page("text/plain", "here") });
  const first = builtin.grantProxy(1);
  const dialler = builtin.grantEgress(1);
  expect((await call(first, "fetch_http", { url: web.url })).content[0]?.text).toBe("here");
  dialler.close();
  // One that is lost is waited for; a grant of an old generation is none.
  const waiting = call(first, "fetch_http", { url: web.url });
  const old = builtin.grantEgress(1, async () => {
    throw new Error("it was asked all the same");
  });
  await old.ended;
  builtin.grantEgress(2);
  expect((await waiting).content[0]?.text).toBe("here");
  const second = builtin.grantProxy(2);
  await first.ended;
  expect((await call(second, "echo", { text: "x" })).content[0]?.text).toBe("x");
});

confined("what is no grant is closed, and the next one counts", async () => {
  const builtin = await started();
  for (const text of [
    "",
    "x",
    "{}",
    '{"kind":"service","name":"x","generation":1}',
    '{"kind":"proxy","name":"x","generation":0}',
  ]) {
    const [near, far] = native().socketPair("stream");
    if (text === "") native().closeDescriptor(far);
    else builtin.grantRaw(text, far);
    native().closeDescriptor(near);
  }
  const proxy = builtin.grantProxy(1);
  expect((await call(proxy, "echo", { text: "x" })).content[0]?.text).toBe("x");
  const aggregator = native().socketPair("stream");
  builtin.grantRaw('{"kind":"aggregator","name":"x","generation":9}', aggregator[1]);
  native().closeDescriptor(aggregator[0]);
  expect((await call(proxy, "echo", { text: "y" })).content[0]?.text).toBe("y");
});

confined("a plan that is none ends it before it is sealed", async () => {
  for (const input of ["{}\n", "x\n", "", '{"kind":"proxy"}\n']) {
    const builtin = startBuiltin(input);
    expect((await builtin.exited).code).toBe(1);
    expect(builtin.log()).toContain("Cannot read the plan");
  }
});

confined("ten thousand calls leave it as large as a thousand did", async () => {
  const builtin = await started();
  const proxy = builtin.grantProxy(1);
  const text = "x".repeat(100);
  const residentMib = () =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${builtin.pid}/status`, "utf8"))?.[1]) / 1024;
  const calls = async (count: number) => {
    for (let round = 0; round < count / 50; round += 1)
      await Promise.all(Array.from({ length: 50 }, () => call(proxy, "echo", { text })));
  };
  await calls(3_000);
  const before = residentMib();
  await calls(7_000);
  expect(residentMib() - before).toBeLessThan(40);
});
