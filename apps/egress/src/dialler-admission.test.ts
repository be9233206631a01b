// What is being admitted, while its caller leaves or its permission is taken back.
import { expect, test } from "vitest";
import { dialling, failureOf, readAll, until } from "./testing/dialling.ts";
import { httpServer } from "./testing/servers.ts";

test("a caller who leaves while it is being admitted takes its own question along", async () => {
  let isAborted = false;
  const { fetch, ends, dialler } = dialling({
    admit: (_, signal) =>
      new Promise((_resolve, reject) => {
        signal?.addEventListener("abort", () => {
          isAborted = true;
          reject(signal.reason);
        });
      }),
  });
  const controller = new AbortController();
  const waiting = failureOf(fetch("https://example.com/", { server: null }, controller.signal));
  setTimeout(() => controller.abort(), 10);
  expect((await waiting).kind).toBe("cancelled");
  expect([isAborted, ends, dialler.leaseCount]).toEqual([true, [], 0]);
});

test("an admission that comes too late is given back, unused", async () => {
  let give: (value: object) => void = () => undefined;
  const server = await httpServer((_, response) => response.end("x"));
  const { fetch, asked, ends, dialler } = dialling({
    admit: () =>
      new Promise((resolve) => {
        give = resolve;
      }),
  });
  const late = failureOf(fetch(server.url, { server: null, timeout_ms: 20 }));
  await until(() => asked.length === 1, "it is being admitted");
  expect((await late).kind).toBe("timeout");
  give({});
  await until(() => ends.length === 1, "it was given back");
  expect(ends[0]).toMatchObject({ error: "timeout", status: null });
  expect([dialler.leaseCount, server.connections]).toEqual([0, 0]);
});

test("what is taken back while it is being admitted is not used, however late its answer comes", async () => {
  let give: (value: object) => void = () => undefined;
  const server = await httpServer((_, response) => response.end("x"));
  const { fetch, dialler, asked, ends } = dialling({
    admit: () =>
      new Promise((resolve) => {
        give = resolve;
      }),
  });
  const waiting = failureOf(fetch(server.url));
  await until(() => asked.length === 1, "it is being admitted");
  dialler.revoke("docs", "the permission for it was taken back");
  give({});
  expect(await waiting).toMatchObject({ kind: "policy", retryable: true });
  expect([ends.map(({ error }) => error), dialler.leaseCount, server.connections]).toEqual([
    ["revoked"],
    0,
    0,
  ]);
});

test("what is taken back of one server is nothing to another that is being admitted", async () => {
  let give: (value: object) => void = () => undefined;
  const server = await httpServer((_, response) => response.end("x"));
  const { fetch, dialler, asked, ends } = dialling({
    admit: () =>
      new Promise((resolve) => {
        give = resolve;
      }),
  });
  const waiting = fetch(server.url, { server: "other" });
  await until(() => asked.length === 1, "it is being admitted");
  dialler.revoke("docs", "the permission for it was taken back");
  give({});
  expect(await readAll((await waiting).body)).toBe("x");
  expect(ends).toEqual([]);
});

test("who comes after something was taken back is admitted anew, whatever was asked before", async () => {
  const gives: ((value: object) => void)[] = [];
  const server = await httpServer((_, response) => response.end("x"));
  const { fetch, dialler, asked, ends } = dialling({
    admit: () => new Promise((resolve) => void gives.push(resolve)),
  });
  const before = failureOf(fetch(server.url));
  await until(() => asked.length === 1, "the first is being admitted");
  dialler.revoke("docs", "the permission for it was taken back");
  const after = [fetch(server.url), fetch(server.url)];
  await until(() => asked.length === 2, "the second is being admitted");
  for (const give of gives) give({});
  expect(await before).toMatchObject({ kind: "policy", retryable: true });
  for (const fetched of after) expect(await readAll((await fetched).body)).toBe("x");
  expect([ends.map(({ error }) => error), asked.length]).toEqual([["revoked"], 2]);
});

test("the end of a client ends all that it has, also what is still being admitted", async () => {
  let give: (value: object) => void = () => undefined;
  const server = await httpServer((request, response) => {
    if (request.url === "/stream") response.write("x");
  });
  const { fetch, dialler, asked, ends } = dialling({
    admit: ({ server: name }) =>
      name === "late"
        ? new Promise((resolve) => {
            give = resolve;
          })
        : {},
  });
  const stream = await fetch(`${server.url}/stream`);
  const late = failureOf(fetch(server.url, { server: "late" }));
  await until(() => asked.length === 2, "the other is being admitted");
  dialler.end();
  give({});
  expect((await late).kind).toBe("policy");
  expect((await failureOf(readAll(stream.body))).kind).toBe("policy");
  await until(() => ends.length === 2 && server.sockets.size === 0, "all is closed");
  expect(dialler.leaseCount).toBe(0);
});
