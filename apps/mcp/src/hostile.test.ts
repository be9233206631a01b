import { createServer as createHttpServer, type RequestListener, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { PassThrough } from "node:stream";
import { createNodeClient } from "@capsem/sdk/node";
import { afterEach, describe, expect, it } from "vitest";
import type { Calls } from "./attempt.ts";
import { CALLS_MAX } from "./limits.ts";
import { serveStdio } from "./mcp-sdk.ts";
import { parseOptions } from "./options.ts";
import { createServer } from "./server.ts";
import { StdioLines } from "./stdio-lines.ts";
import type { FailureObject } from "./tool-failure.ts";

const TOKEN = "S3cretTokenOfTheGateway";
const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

interface Answer {
  readonly id: number;
  readonly result: { readonly isError?: boolean; readonly content: readonly { readonly text: string }[] };
}

/** The server as the program runs it, spoken to in lines, before an upstream that answers with `listener`. */
async function start(listener: RequestListener) {
  const upstream = createHttpServer(listener);
  await new Promise<void>((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  const client = createNodeClient({ url, token: TOKEN });
  const input = new PassThrough();
  const answers: Answer[] = [];
  const write = async (text: string) => void answers.push(JSON.parse(text) as Answer);
  const every = () => () => undefined;
  const stateKey = () => new Uint8Array(32);
  serveStdio(() => createServer(client as Calls, { version: "0", timeoutMs: 30_000, every, stateKey }), {
    transport: new StdioLines(input, write),
  });
  closers.push(() => {
    client.close();
    input.end();
    upstream.close();
    upstream.closeAllConnections();
  });
  const send = (text: string) => void input.write(`${text}\n`);
  const clientInfo = { name: "t", version: "1" };
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
  send(JSON.stringify({ jsonrpc: "2.0", id: 0, method: "initialize", params }));
  send('{"jsonrpc":"2.0","method":"notifications/initialized"}');
  const answerOf = async (id: number) => {
    await expect.poll(() => answers.some((each) => each.id === id), { timeout: 10_000 }).toBe(true);
    return answers.find((each) => each.id === id)?.result;
  };
  return {
    answers,
    send,
    call: (id: number, name: string, args: string) =>
      send(
        `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"${name}","arguments":${args}}}`,
      ),
    failureOf: async (id: number) => {
      const text = (await answerOf(id))?.content[0]?.text ?? "";
      return (JSON.parse(text) as { error: FailureObject }).error;
    },
  };
}

const VM = '"vm_id":"vm_aaaaaaaaaaaaaaaa"';

describe("a crowd of calls", () => {
  it("is carried out a part at a time, and one that waits can be cancelled", async () => {
    const held: ServerResponse[] = [];
    let seen = 0;
    const { answers, call, send } = await start((_request, response) => {
      seen += 1;
      held.push(response);
    });
    const all = CALLS_MAX + 8;
    for (let id = 1; id <= all; id += 1) call(id, "capsem_stop", `{${VM}}`);
    await expect.poll(() => seen).toBe(CALLS_MAX);
    const requestId = all;
    send(JSON.stringify({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } }));
    const answered = () => answers.filter(({ id }) => id > 0).length;
    while (answered() < all - 1) {
      for (const response of held.splice(0)) response.end("{}");
      await new Promise((resolve) => setImmediate(resolve));
    }
    // The cancelled one was never sent.
    expect(seen).toBe(all - 1);
    expect(answers.filter(({ result }) => result.isError === true)).toEqual([]);
  });
});

describe("an upstream that is not to be trusted", () => {
  it("cannot put the token before the model by repeating it", async () => {
    const { call, failureOf } = await start(({ headers }, response) => {
      const reason = `Cannot serve ${headers.authorization}`;
      response.writeHead(400).end(JSON.stringify({ error: { kind: "invalid_input", reason } }));
    });
    call(1, "capsem_list", "{}");
    expect((await failureOf(1)).reason).toBe("Cannot serve Bearer [token]");
  });

  it("cannot turn the order of characters, or begin a line, in a reason", async () => {
    const codes = [0x202e, 0x2066, 0x2069, 0x200e, 0x200f, 0x061c, 0x2028, 0x2029, 0x85, 0x1b, 0x0a];
    const hostile = String.fromCodePoint(...codes);
    const { call, failureOf } = await start((_request, response) => {
      const reason = [...hostile].join("x");
      response.writeHead(400).end(JSON.stringify({ error: { kind: "invalid_input", reason } }));
    });
    call(1, "capsem_list", "{}");
    const { reason } = await failureOf(1);
    expect(reason).toBe(Array.from({ length: codes.length - 1 }, () => "x").join(" "));
  });
});

describe("an argument that is named __proto__", () => {
  it.each([
    ["capsem_list", '{"__proto__":{"x":1}}', "__proto__"],
    ["capsem_list", '{"\\u005f_proto__":1}', "__proto__"],
    ["capsem_exec", `{${VM},"command":"true","env":{"__proto__":"x"}}`, "env.__proto__"],
  ])("of %s %s is refused and not carried out", async (name, args, path) => {
    let seen = 0;
    const { call, failureOf } = await start((_request, response) => {
      seen += 1;
      response.end('{"vms":[]}');
    });
    call(1, name, args);
    expect(await failureOf(1)).toEqual({
      kind: "invalid_input",
      reason: `Cannot use ${name}: ${path}: there is no such argument`,
      retryable: false,
    });
    expect(seen).toBe(0);
  });

  it("is no reason to refuse a text that has the word", async () => {
    let seen = 0;
    const { call, failureOf } = await start((_request, response) => {
      seen += 1;
      response.writeHead(404).end('{"error":{"kind":"vm_not_found","reason":"no"}}');
    });
    call(1, "capsem_exec", `{${VM},"command":"__proto__"}`);
    expect(await failureOf(1)).toMatchObject({ code: "vm_not_found" });
    expect(seen).toBe(1);
  });
});

describe("--gateway-url", () => {
  it.each(["http://127.evil.example", "http://127.0.0.1.evil.example", "http://localhost."])(
    "of another machine is not taken for this one: %s",
    (url) => {
      expect(() => parseOptions(["--gateway-url", url])).toThrow(/use https/);
      expect(parseOptions(["--gateway-url", url.replace("http:", "https:")]).kind).toBe("serve");
    },
  );

  it.each(["http://127.0.0.1:1", "http://127.9.9.9:1", "http://localhost:1", "http://[::1]:1"])(
    "of this machine may be http: %s",
    (url) => {
      expect(parseOptions(["--gateway-url", url]).kind).toBe("serve");
    },
  );
});
