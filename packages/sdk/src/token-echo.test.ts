import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { createClient as createFetchClient } from "./client.ts";
import { createClient } from "./node.ts";

const TOKEN = "S3cretTokenOfTheGateway";
const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** Answers every request with an error that repeats all headers. */
async function startEcho(): Promise<string> {
  const textOf = (headers: object) => {
    const reason = `Cannot serve: ${JSON.stringify(headers)}`;
    return JSON.stringify({ error: { kind: "internal", reason, status: 500, retryable: false } });
  };
  const server = createServer((request, response) => {
    response.writeHead(500).end(textOf(request.headers));
  });
  server.on("upgrade", (request, socket) => {
    const text = textOf(request.headers);
    socket.end(`HTTP/1.1 500 No\r\ncontent-length: ${text.length}\r\nconnection: close\r\n\r\n${text}`);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("an error that repeats the token reaches nobody with it", async () => {
  const url = await startEcho();
  const client = createClient({ url, token: TOKEN });
  const calls = [
    () => client.vms.list(),
    () => createFetchClient({ url, token: TOKEN }).vms.list(),
    () => client.vm("vm_aaaaaaaaaaaaaaaa").stream("true"),
  ];
  for (const call of calls) {
    const failure: unknown = await Promise.resolve(call()).catch((thrown: unknown) => thrown);
    expect(failure).toMatchObject({ kind: "internal", message: expect.stringContaining("[token]") });
    expect((failure as Error).message).not.toContain(TOKEN);
  }
});

test("as the other end wrote it the token is in the error", async () => {
  const answer = await fetch(`${await startEcho()}/x`, { headers: { authorization: `Bearer ${TOKEN}` } });
  expect(await answer.text()).toContain(TOKEN);
});

test.each([
  "http://127.evil.example",
  "http://127.0.0.1.evil.example:19222",
  "http://192.168.1.2:19222",
  "http://localhost.",
])("the token does not go in the clear to %s, unless that is said", (url) => {
  for (const create of [createClient, createFetchClient]) {
    expect(() => create({ url, token: TOKEN })).toThrow(/use https/);
    create({ url, token: TOKEN, allowsClearText: true }).close();
    create({ url: url.replace("http:", "https:"), token: TOKEN }).close();
  }
});

test("localhost is the address that the gateway listens at, and not another user's ::1", async () => {
  const mine = await startEcho();
  const port = Number(new URL(mine).port);
  const seen: string[] = [];
  const other = createServer((request, response) => {
    seen.push(request.headers.authorization ?? "");
    response.end("{}");
  });
  await new Promise<void>((resolve, reject) => {
    other.once("error", reject).listen(port, "::1", resolve);
  });
  closers.push(() => {
    other.close();
    other.closeAllConnections();
  });
  const url = `http://localhost:${port}`;
  for (const create of [createClient, createFetchClient])
    await expect(create({ url, token: TOKEN }).vms.list()).rejects.toMatchObject({ status: 500 });
  expect(seen).toEqual([]);
});
