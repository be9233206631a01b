import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { readRecords } from "@capsem/mcp-protocol";
import { expect, test, vi } from "vitest";
import { TEXT_LIMITS } from "../limits.ts";
import { page, startRig, startWeb } from "../testing/rig.ts";
import { TOOLS } from "./tool-table.ts";

vi.setConfig({ testTimeout: 60_000 });

const HTML =
  '<!doctype html><html><head><title>A page</title><script>steal()</script></head><body><h1>Head</h1><p>Some <b>bold</b> text, <a href="/next">next</a>.</p></body></html>';

test("a page comes as Markdown, with its links made whole and its programs left out", async () => {
  const rig = startRig();
  const web = await startWeb({ "/a": page("text/html; charset=utf-8", HTML) });
  const result = await rig.call("fetch_http", { url: `${web.url}/a#part` });
  const text = `# Head\n\nSome **bold** text, [next](${web.url}/next).`;
  expect(result.content).toEqual([{ type: "text", text }]);
  expect(result.structuredContent).toEqual({
    ...{
      url: `${web.url}/a`,
      status: 200,
      mime_type: "text/html",
      format: "markdown",
      title: "A page",
      text,
    },
    ...{ offset: 0, total_chars: text.length, next_offset: null },
  });
  expect(result._meta).toEqual({
    "dev.capsem/ledger": { url: `${web.url}/a`, status: 200, bytes_received: HTML.length, redirects: 0 },
  });
  expect([result.isError, rig.faults]).toEqual([false, []]);
});

test("JSON comes byte for byte, whatever format is asked for, and nothing stands in front of it", async () => {
  const rig = startRig();
  const json = '{ "a" : 1.0, "b":[9007199254740993, 1e400],\n"a":"é\\u00e9"}\n';
  const web = await startWeb({ "/j": page("application/vnd.x+json", json) });
  for (const format of ["markdown", "content", "raw"]) {
    const { content, structuredContent } = await rig.call("fetch_http", { url: `${web.url}/j`, format });
    expect([content, structuredContent.format]).toEqual([[{ type: "text", text: json }], "raw"]);
  }
});

test("raw is the page as it is, and content the article without what stands around it", async () => {
  const rig = startRig();
  const words =
    "This is what the page is read for, and it has quite a few words in it, so it counts as one. ";
  const html = `<html><head><title>T</title></head><body><nav><a href="/">Home</a> <a href="/x">Menu entry</a></nav><article><h2>The article</h2>${`<p>${words.repeat(5)}</p>`.repeat(6)}</article><footer>Imprint and more</footer></body></html>`;
  const web = await startWeb({
    "/a": page("text/html", html),
    "/none": page("text/html", '<img src="/i.png" alt="I">'),
  });
  const raw = await rig.call("fetch_http", { url: `${web.url}/a`, format: "raw" });
  expect(raw.content[0]?.text).toBe(html);
  const article = await rig.call("fetch_http", { url: `${web.url}/a`, format: "content" });
  expect(article.structuredContent.format).toBe("content");
  expect(article.content[0]?.text).toContain("read for");
  expect(article.content[0]?.text).not.toMatch(/Menu entry|Imprint/);
  const whole = await rig.call("fetch_http", { url: `${web.url}/a` });
  expect(whole.content[0]?.text).toMatch(/Menu entry[\s\S]*read for[\s\S]*Imprint/);
  const none = await rig.call("fetch_http", { url: `${web.url}/none`, format: "content" });
  expect([none.structuredContent.format, none.content[0]?.text]).toEqual([
    "markdown",
    `![I](${web.url}/i.png)`,
  ]);
});

test("parts by next_offset are the text, in whichever sizes", async () => {
  const rig = startRig();
  const text = Array.from({ length: 400 }, (_, index) => `${index} 😀é\n`).join("");
  const web = await startWeb({
    "/t": page("text/plain; charset=utf-8", text),
    "/h": page("text/html", `<p>${text}</p>`),
  });
  for (const [path, sizes] of [
    ["/t", [1, 7, 1_000, TEXT_LIMITS.charsMax]],
    ["/h", [333]],
  ] as const) {
    const whole = (await rig.call("fetch_http", { url: web.url + path, max_chars: TEXT_LIMITS.charsMax }))
      .content[0]?.text;
    for (const max_chars of sizes) {
      if (max_chars === 1) continue;
      let [joined, offset] = ["", 0 as number | null];
      for (let parts = 0; offset !== null && parts < 5_000; parts += 1) {
        const { content, structuredContent } = await rig.call("fetch_http", {
          url: web.url + path,
          offset,
          max_chars,
        });
        joined += content[0]?.text ?? "";
        expect(structuredContent.total_chars).toBe(whole?.length);
        offset = structuredContent.next_offset as number | null;
      }
      expect(joined === whole).toBe(true);
    }
  }
  const beyond = await rig.call("fetch_http", { url: `${web.url}/t`, offset: 10_000_000 });
  expect(beyond.structuredContent).toMatchObject({ text: "", offset: text.length, next_offset: null });
});

test("binary content is refused unless it is asked for raw, and then comes whole as base64", async () => {
  const rig = startRig();
  const bytes = Uint8Array.from({ length: 1_000 }, (_, index) => index % 256);
  const web = await startWeb({
    "/png": page("image/png", bytes),
    "/wav": page("audio/wav", bytes),
    "/zip": page("application/zip", bytes),
    "/lie": page("text/plain", bytes),
    "/none": page(null, bytes),
    "/octets": page("application/octet-stream", "only text"),
  });
  for (const path of ["/png", "/wav", "/zip", "/lie", "/none"]) {
    const refused = await rig.call("fetch_http", { url: web.url + path });
    expect([path, refused.isError, refused.content[0]?.text]).toEqual([
      path,
      true,
      expect.stringContaining("binary"),
    ]);
    expect(refused.structuredContent).toBe(undefined);
    const grep = await rig.call("grep_http", { url: web.url + path, pattern: "a" });
    expect([path, grep.isError]).toEqual([path, true]);
  }
  const data = Buffer.from(bytes).toString("base64");
  const raw = async (path: string) =>
    (await rig.call("fetch_http", { url: web.url + path, format: "raw" })).content;
  expect(await raw("/png")).toEqual([{ type: "image", data, mimeType: "image/png" }]);
  expect(await raw("/wav")).toEqual([{ type: "audio", data, mimeType: "audio/wav" }]);
  expect(await raw("/zip")).toEqual([
    { type: "resource", resource: { uri: `${web.url}/zip`, mimeType: "application/zip", blob: data } },
  ]);
  expect(await raw("/octets")).toEqual([{ type: "text", text: "only text" }]);
});

test.each<[string, (text: string) => Uint8Array]>([
  ["gzip", gzipSync],
  ["deflate", deflateSync],
  ["deflate", deflateRawSync],
  ["br", brotliCompressSync],
  ["gzip, br", (text) => brotliCompressSync(gzipSync(text))],
  ["identity", (text) => Buffer.from(text)],
])("a body that is coded by %s is read", async (coding, encode) => {
  const rig = startRig();
  const text = "word ".repeat(20_000);
  const web = await startWeb({ "/": page("text/plain", encode(text), { "content-encoding": coding }) });
  const result = await rig.call("fetch_http", { url: `${web.url}/`, max_chars: TEXT_LIMITS.charsMax });
  expect(result.content[0]?.text === text).toBe(true);
  expect(web.seen[0]?.headers["accept-encoding"]).toContain("zstd");
});

test("each redirect is a request of its own, and nothing but what every request has goes with it", async () => {
  const rig = startRig();
  const web = await startWeb({
    "/1": (_, response) => response.writeHead(301, { location: "/2", "set-cookie": "a=b" }).end("moved"),
    "/2": (_, response) => response.writeHead(307, { location: `${web.url}/3?q=1#x` }).end(),
    "/3": page("text/plain", "here"),
  });
  const result = await rig.call("fetch_http", { url: `${web.url}/1` });
  expect([result.content[0]?.text, result.structuredContent.url]).toEqual(["here", `${web.url}/3?q=1`]);
  expect(result._meta?.["dev.capsem/ledger"]).toMatchObject({ redirects: 2 });
  expect(rig.calls.map(({ url, server, method }) => [url, server, method])).toEqual(
    ["/1", "/2", "/3?q=1"].map((path) => [web.url + path, null, "GET"]),
  );
  for (const { headers } of rig.calls)
    expect(headers.map(([name]) => name).sort()).toEqual(["accept", "accept-encoding", "user-agent"]);
  const headers = await rig.call("http_headers", { url: `${web.url}/1` });
  expect(headers.structuredContent).toMatchObject({
    status: 200,
    redirects: [
      { status: 301, from: `${web.url}/1`, to: `${web.url}/2` },
      { status: 307, from: `${web.url}/2`, to: `${web.url}/3?q=1` },
    ],
  });
});

test("redirects that come to nothing end with words, and with no request more than is allowed", async () => {
  const rig = startRig();
  const to = (location: string) => (_: unknown, response: import("node:http").ServerResponse) =>
    void response.writeHead(302, { location }).end();
  const web = await startWeb({
    "/self": to("/self"),
    "/a": to("/b"),
    "/b": to("/a"),
    "/file": to("file:///etc/passwd"),
    "/user": to("http://user:word@127.0.0.1/"),
    "/bad": to("http://[oops"),
    "/chain": (request, response) => {
      const count = Number(new URL(request.url ?? "", "http://x").searchParams.get("n") ?? 0);
      response.writeHead(302, { location: `/chain?n=${count + 1}` }).end();
    },
  });
  const words = async (path: string) => {
    const result = await rig.call("fetch_http", { url: web.url + path });
    return [result.isError, result.content[0]?.text];
  };
  expect(await words("/self")).toEqual([true, expect.stringContaining("redirects back")]);
  expect(await words("/a")).toEqual([true, expect.stringContaining("redirects back")]);
  for (const path of ["/file", "/user", "/bad"])
    expect([path, ...(await words(path))]).toEqual([
      path,
      true,
      expect.stringContaining("a redirect leads to"),
    ]);
  rig.calls.length = 0;
  expect(await words("/chain")).toEqual([true, expect.stringContaining("over 5 redirects")]);
  expect(rig.calls.length).toBe(6);
});

test("an answer that says that it failed is an error that gives what it says", async () => {
  const rig = startRig();
  const web = await startWeb({});
  const result = await rig.call("fetch_http", { url: `${web.url}/gone` });
  expect([result.isError, result.content[0]?.text, result.structuredContent.status]).toEqual([
    true,
    "there is nothing",
    404,
  ]);
  const headers = await rig.call("http_headers", { url: `${web.url}/gone` });
  expect([headers.isError, headers.structuredContent.status]).toEqual([undefined, 404]);
  const refused = await rig.call("fetch_http", { url: "http://127.0.0.1:1/" });
  expect([refused.isError, refused._meta]).toEqual([
    true,
    { "dev.capsem/ledger": { error: "connect_failed", retryable: false } },
  ]);
});

test("lines are found by their pattern, with what is around them", async () => {
  const rig = startRig();
  const text = Array.from(
    { length: 30 },
    (_, index) => `line ${index + 1}${index % 10 === 4 ? " HIT" : ""}`,
  ).join("\r\n");
  const web = await startWeb({ "/t": page("text/plain", `${text}\n`), "/h": page("text/html", HTML) });
  const result = await rig.call("grep_http", {
    url: `${web.url}/t`,
    pattern: "\\bhit$",
    ignore_case: true,
    context: 1,
  });
  expect(result.content[0]?.text).toBe(
    [5, 15, 25]
      .map((n) => `${n - 1}-line ${n - 1}\n${n}:line ${n} HIT\n${n + 1}-line ${n + 1}`)
      .join("\n--\n"),
  );
  expect(result.structuredContent).toMatchObject({ total_matches: 3, total_lines: 30, is_cut: false });
  const few = await rig.call("grep_http", { url: `${web.url}/t`, pattern: "line", max_matches: 2 });
  expect(few.structuredContent).toMatchObject({ total_matches: 30, is_cut: true });
  expect(few.content[0]?.text).toBe("1:line 1\n2:line 2");
  const close = await rig.call("grep_http", {
    url: `${web.url}/t`,
    pattern: "^line [345]( HIT)?$",
    context: 2,
  });
  expect(close.content[0]?.text).toBe(
    "1-line 1\n2-line 2\n3:line 3\n4:line 4\n5:line 5 HIT\n6-line 6\n7-line 7",
  );
  const html = await rig.call("grep_http", { url: `${web.url}/h`, pattern: "^# H" });
  expect(html.content[0]?.text).toBe("1:# Head");
  const source = await rig.call("grep_http", { url: `${web.url}/h`, pattern: "steal\\(", format: "raw" });
  expect(source.structuredContent).toMatchObject({ total_matches: 1 });
  const bad = await rig.call("grep_http", { url: `${web.url}/h`, pattern: "(" });
  expect([bad.isError, bad.content[0]?.text]).toEqual([
    true,
    expect.stringContaining("Cannot use the pattern"),
  ]);
});

test("headers come as they are, by HEAD or by GET without its body", async () => {
  const rig = startRig();
  const web = await startWeb({
    "/": (request, response) => {
      response.setHeader("set-cookie", ["a=1", "b=2"]);
      response.writeHead(200, { "x-method": request.method ?? "" });
      response.end("x".repeat(100));
    },
  });
  for (const method of ["HEAD", "GET"] as const) {
    const { structuredContent, content } = await rig.call("http_headers", { url: web.url, method });
    const headers = structuredContent.headers as { name: string; value: string }[];
    expect(headers.filter(({ name }) => name === "set-cookie").map(({ value }) => value)).toEqual([
      "a=1",
      "b=2",
    ]);
    expect(headers).toContainEqual({ name: "x-method", value: method });
    expect(content[0]?.text).toContain(`200 ${web.url}/\n`);
  }
});

test("echo answers with the text, and nothing is dialled", async () => {
  const rig = startRig();
  for (const text of ["", 'a\u2028"\\\ud800', "é".repeat(500_000)]) {
    const { content, structuredContent } = await rig.call("echo", { text });
    expect(content[0]?.text === text).toBe(true);
    expect(structuredContent).toEqual({ chars: text.length });
  }
  expect(rig.calls).toEqual([]);
});

test.each([
  ["fetch_http", {}, "url must be a string"],
  ["fetch_http", { url: 1 }, "url must be a string"],
  ["fetch_http", { url: "nowhere" }, "it is no URL"],
  ["fetch_http", { url: "file:///etc/passwd" }, "only http and https"],
  ["fetch_http", { url: "javascript:alert(1)" }, "only http and https"],
  ["fetch_http", { url: "http://me:secret@h/" }, "has a user in it"],
  ["fetch_http", { url: `http://h/${"x".repeat(9_000)}` }, "characters, limit"],
  ["fetch_http", { url: "http://h/", format: "pdf" }, "must be one of"],
  ["fetch_http", { url: "http://h/", offset: -1 }, "integer from 0"],
  ["fetch_http", { url: "http://h/", max_chars: 0 }, "integer from 1"],
  ["fetch_http", { url: "http://h/", max_chars: 1.5 }, "integer from 1"],
  ["fetch_http", { url: "http://h/", headers: {} }, "headers is not known"],
  ["grep_http", { url: "http://h/" }, "pattern must be"],
  ["grep_http", { url: "http://h/", pattern: "" }, "pattern is empty"],
  ["grep_http", { url: "http://h/", pattern: "a", ignore_case: "yes" }, "true or false"],
  ["http_headers", { url: "http://h/", method: "POST" }, "must be one of"],
  ["echo", { text: null }, "text must be a string"],
  ["echo", [], "is no object"],
])("%s refuses %j before anything is dialled", async (tool, args, words) => {
  const rig = startRig();
  const result = await rig.call(tool, args);
  expect([result.isError, result.content[0]?.text, rig.calls]).toEqual([
    true,
    expect.stringContaining(words),
    [],
  ]);
});

test("what is no tool, no method or no server is an error of its own", async () => {
  const rig = startRig();
  expect(JSON.parse((await rig.request("tools/call", { name: "rm" })).text)).toMatchObject({ code: -32_602 });
  expect(JSON.parse((await rig.request("tools/call", { name: "constructor" })).text)).toMatchObject({
    code: -32_602,
  });
  expect(JSON.parse((await rig.request("prompts/get", {})).text)).toMatchObject({ code: -32_601 });
  const other = { server: "else", method: "tools/call", params: "{}", timeout_ms: 1, client: {} };
  await expect(rig.peer.open("server.request", other)).rejects.toMatchObject({ kind: "not_found" });
  await expect(rig.peer.call("server.catalog", { server: "else", refresh: false })).rejects.toMatchObject({
    kind: "not_found",
  });
  expect(await rig.peer.call("server.set", { generation: 1, servers: [] })).toEqual({});
});

test("large arguments come apart from the rest, and are the same to a tool", async () => {
  const rig = startRig();
  const text = "é\n".repeat(20_000);
  const { stream } = await rig.peer.open("server.request", {
    ...{ server: "local", method: "tools/call", params: '{"name":"echo"}', timeout_ms: 10_000, client: {} },
    arguments: Buffer.from(JSON.stringify({ text })),
  });
  stream.end();
  for await (const record of readRecords(stream, ["result"]))
    expect(JSON.parse(record.text).content[0].text === text).toBe(true);
  expect.assertions(1);
});

test("the catalogue has the four tools, each with both schemas and annotations", async () => {
  const rig = startRig();
  const catalog = (await rig.peer.call("server.catalog", { server: "local", refresh: false })) as {
    tools: string[];
  };
  const tools = catalog.tools.map((text) => JSON.parse(text));
  expect(tools.map(({ name }) => name)).toEqual(["fetch_http", "grep_http", "http_headers", "echo"]);
  for (const tool of tools) {
    expect([tool.inputSchema.type, tool.outputSchema.type]).toEqual(["object", "object"]);
    expect(tool.description.length).toBeGreaterThan(40);
    expect(tool.annotations).toMatchObject({ readOnlyHint: true, destructiveHint: false });
  }
  expect(tools).toEqual(TOOLS.map(({ definition }) => JSON.parse(JSON.stringify(definition))));
});

test("a call that takes too long says so, and one whose caller goes leaves nothing behind", async () => {
  const rig = startRig();
  const ends: Promise<void>[] = [];
  const web = await startWeb({
    "/slow": (request, response) => {
      ends.push(new Promise((done) => request.once("close", () => done())));
      response.writeHead(200, { "content-type": "text/plain" });
      response.write("a beginning");
    },
  });
  const result = await rig.call("fetch_http", { url: `${web.url}/slow` }, { timeoutMs: 300 });
  expect([result.isError, result.content[0]?.text]).toEqual([true, "Cannot fetch: not done within 300 ms"]);
  await ends[0];
  const leaving = new AbortController();
  const call = rig.call("fetch_http", { url: `${web.url}/slow` }, { signal: leaving.signal });
  await vi.waitFor(() => expect(ends).toHaveLength(2));
  leaving.abort();
  await expect(call).rejects.toThrow();
  await ends[1];
  await vi.waitFor(() => expect(rig.peer.streamCount).toBe(0));
  expect(rig.faults).toEqual([]);
});
