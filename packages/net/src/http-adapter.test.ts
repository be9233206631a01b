import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@capsem/base";
import { createPeer, type Peer } from "@capsem/rpc";
import { expect, onTestFinished, test, vi } from "vitest";
import { duplexPair } from "../../rpc/src/duplex-pair.ts";
import { createHttpClient, type HttpBody, type HttpRequest } from "./http-client.ts";
import { type HttpServe, httpMethods } from "./http-server.ts";

function linked(serve: HttpServe) {
  const [near, far] = duplexPair();
  const faults: unknown[] = [];
  const server = createPeer({
    role: "host",
    duplex: far,
    streaming: httpMethods(serve),
    onInternalError: (_, thrown) => faults.push(thrown),
  });
  const peer = createPeer({ role: "guest", duplex: near });
  onTestFinished(() => {
    peer.close();
    server.close();
  });
  return { client: createHttpClient({ peer: () => peer }), peer, server, faults };
}

/** Gives chunks as they are asked for, and counts them. */
class Source implements HttpBody {
  given = 0;
  isCancelled = false;
  readonly #next: (index: number) => Promise<Uint8Array | null> | Uint8Array | null;

  constructor(next: (index: number) => Promise<Uint8Array | null> | Uint8Array | null) {
    this.#next = next;
  }

  async read() {
    if (this.isCancelled) return null;
    const chunk = await this.#next(this.given);
    if (chunk !== null) this.given += 1;
    return chunk;
  }

  cancel() {
    this.isCancelled = true;
  }

  async *[Symbol.asyncIterator]() {
    for (let chunk = await this.read(); chunk !== null; chunk = await this.read()) yield chunk;
  }
}

const listOf = (...texts: string[]) =>
  new Source((index) => (texts[index] === undefined ? null : Buffer.from(texts[index])));

const request = (more: Partial<HttpRequest> = {}): HttpRequest => ({
  server: "docs",
  url: "https://example.com/mcp",
  method: "POST",
  headers: [["accept", "application/json"]],
  body: Buffer.from("{}"),
  timeoutMs: 5_000,
  ...more,
});

async function kindOf(work: Promise<unknown>): Promise<string> {
  const thrown = await work.then(
    () => null,
    (cause: unknown) => cause,
  );
  return thrown instanceof Failure ? thrown.kind : String(thrown);
}

async function textOf(body: HttpBody): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const chunk of body) parts.push(chunk);
  return Buffer.concat(parts).toString();
}

test("a request arrives as it was made, and its answer comes back in order", async () => {
  const seen: unknown[] = [];
  const { client } = linked(async (call) => {
    seen.push(call);
    return {
      head: {
        status: 201,
        headers: [
          ["x-a", "1"],
          ["x-a", "2"],
        ],
      },
      body: listOf("one ", "two ", "three"),
    };
  });
  const { status, headers, body } = await client.fetch(request({ traceId: "abc" }));
  expect([status, headers]).toEqual([
    201,
    [
      ["x-a", "1"],
      ["x-a", "2"],
    ],
  ]);
  expect(await textOf(body)).toBe("one two three");
  expect(seen).toEqual([
    {
      ...{
        server: "docs",
        url: "https://example.com/mcp",
        method: "POST",
        timeout_ms: 5_000,
        trace_id: "abc",
      },
      headers: [["accept", "application/json"]],
      body: new Uint8Array(Buffer.from("{}")),
    },
  ]);
});

test("a refusal keeps its kind and the rule behind it", async () => {
  const { client } = linked(async () => {
    throw new Failure("policy", "Cannot fetch: blocked by rule", {
      facts: { rule_id: "corp.rules.no-web", more: 1 },
    });
  });
  const thrown = await client.fetch(request()).catch((cause: unknown) => cause);
  expect(thrown).toMatchObject({ kind: "policy", facts: { rule_id: "corp.rules.no-web" } });
  expect((thrown as Failure).facts).not.toHaveProperty("more");
});

test("what nobody foresaw says nothing of itself", async () => {
  const { client, faults } = linked(async () => {
    throw new TypeError("secret of egress");
  });
  const thrown = await client.fetch(request()).catch((cause: unknown) => cause);
  expect(thrown).toMatchObject({ kind: "upstream_failed" });
  expect(String(thrown)).not.toContain("secret");
  expect(faults).toHaveLength(1);
});

test("a call of another shape is refused before it is served", async () => {
  const { peer } = linked(async () => ({ head: { status: 200, headers: [] }, body: listOf() }));
  for (const params of [{}, { ...request(), body: "text" }, { server: 1 }, null]) {
    expect(await kindOf(peer.open("http.fetch", params))).toBe("invalid_input");
  }
});

test("a slow reader stops its own source, and no other", async () => {
  const chunk = Buffer.alloc(65_536, 1);
  const slow = new Source(() => chunk);
  const { client } = linked(async ({ url }) => ({
    head: { status: 200, headers: [] },
    body: url.endsWith("/slow") ? slow : listOf("quick"),
  }));
  const held = await client.fetch(request({ url: "https://example.com/slow" }));
  expect(await held.body.read()).not.toBeNull();
  let given = -1;
  while (given !== slow.given) {
    given = slow.given;
    await sleep(50);
  }
  // The stream's credit of 256 KiB, what is in hand, and no more.
  expect(given).toBeLessThan(10);
  for (let i = 0; i < 20; i += 1) expect(await textOf((await client.fetch(request())).body)).toBe("quick");
  expect(slow.given).toBe(given);
  held.body.cancel();
  await vi.waitFor(() => expect(slow.isCancelled).toBe(true), 5_000);
});

test("leaving an answer early, or aborting, ends its source", async () => {
  const sources: Source[] = [];
  const { client } = linked(async () => {
    const source = new Source(() => Buffer.alloc(1_000));
    sources.push(source);
    return { head: { status: 200, headers: [] }, body: source };
  });
  const left = await client.fetch(request());
  for await (const _ of left.body) break;
  const controller = new AbortController();
  const aborted = await client.fetch(request({ signal: controller.signal }));
  await aborted.body.read();
  controller.abort(new Error("enough"));
  const readAll = async () => {
    while ((await aborted.body.read()) !== null);
  };
  expect(await kindOf(readAll())).toBe("cancelled");
  await vi.waitFor(() => expect(sources.map(({ isCancelled }) => isCancelled)).toEqual([true, true]), 5_000);
});

test("aborting before the answer aborts the work", async () => {
  let isAborted = false;
  const { client } = linked(
    (_, signal) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          isAborted = true;
          reject(new Failure("cancelled", "Cannot fetch: cancelled"));
        });
      }),
  );
  const controller = new AbortController();
  const fetched = client.fetch(request({ signal: controller.signal, timeoutMs: null }));
  setTimeout(() => controller.abort(), 10);
  expect(await kindOf(fetched)).toBe("cancelled");
  await vi.waitFor(() => expect(isAborted).toBe(true), 5_000);
});

test("an answer that its server cut is no shorter answer", async () => {
  const { client } = linked(async () => ({
    head: { status: 200, headers: [] },
    body: new Source((index) => {
      if (index < 2) return Buffer.from("part");
      throw new Failure("upstream_failed", "Cannot read the answer: the server closed the connection");
    }),
  }));
  const { body } = await client.fetch(request());
  expect(await kindOf(textOf(body))).toBe("upstream_failed");
});

test("the end of the process that dials fails what is open, and says which end it was", async () => {
  const { client, server } = linked(async ({ url }) => {
    if (url.endsWith("/never")) await new Promise(() => undefined);
    return { head: { status: 200, headers: [] }, body: new Source(() => new Promise(() => undefined)) };
  });
  const waiting = client.fetch(request({ url: "https://example.com/never" }));
  const { body } = await client.fetch(request());
  const reading = body.read();
  setTimeout(() => server.close(), 10);
  expect(await Promise.all([kindOf(waiting), kindOf(reading)])).toEqual(["egress_lost", "egress_lost"]);
  expect(await kindOf(client.fetch(request()))).toBe("egress_lost");
});

test("a peer that is being replaced is waited for", async () => {
  const { peer } = linked(async () => ({ head: { status: 204, headers: [] }, body: listOf() }));
  let give: (peer: Peer) => void = () => undefined;
  const coming = new Promise<Peer>((resolve) => {
    give = resolve;
  });
  const client = createHttpClient({ peer: () => coming });
  const fetched = client.fetch(request());
  const controller = new AbortController();
  const given = client.fetch(request({ signal: controller.signal }));
  controller.abort();
  expect(await kindOf(given)).toBe("cancelled");
  give(peer);
  expect((await fetched).status).toBe(204);
});

test("a body beyond the limit is refused before it is sent", async () => {
  const { client } = linked(async () => ({ head: { status: 200, headers: [] }, body: listOf() }));
  expect(await kindOf(client.fetch(request({ body: new Uint8Array(16_000_001) })))).toBe("invalid_input");
  const { status } = await client.fetch(request({ body: new Uint8Array(16_000_000) }));
  expect(status).toBe(200);
});
