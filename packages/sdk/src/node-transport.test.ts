import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { createNodeClient } from "./node.ts";
import { type FixtureService, startFixtureService } from "./testing/index.ts";

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0)) await close();
});

async function start(
  intercept?: (request: IncomingMessage, response: ServerResponse) => boolean,
  below = "",
): Promise<{ service: FixtureService; client: ReturnType<typeof createNodeClient> }> {
  const root = mkdtempSync(join(tmpdir(), "sdk-net-"));
  const home = join(root, below);
  mkdirSync(home, { recursive: true });
  const service = await startFixtureService({ home, ...(intercept === undefined ? {} : { intercept }) });
  const client = createNodeClient({ home });
  open.push(async () => {
    client.close();
    await service.close();
    rmSync(root, { recursive: true, force: true });
  });
  return { service, client };
}

test("a home path far over the socket limit works for requests and streams", async () => {
  const { client } = await start(undefined, "x".repeat(100) + "/".concat("y".repeat(120)));
  const { id } = await client.vms.create();
  expect(await client.vm(id).stream({ command: "exit 5" })).toMatchObject({ exit_code: 5 });
});

test("no service is unavailable and may be tried again", async () => {
  for (const home of ["/nonexistent", `/nonexistent/${"z".repeat(200)}`])
    await expect(createNodeClient({ home }).vms.list()).rejects.toMatchObject({
      kind: "unavailable",
      retryable: true,
      outcome: "none",
    });
});

test("a service that does not answer is a timeout", async () => {
  const { client } = await start(() => true);
  await expect(client.health({ timeoutMs: 30 })).rejects.toMatchObject({ kind: "timeout" });
});

test("a mutation whose answer is lost is sent once, and its outcome is unknown", async () => {
  const { client, service } = await start((request) => {
    request.socket.destroy();
    return true;
  });
  await expect(client.vms.create()).rejects.toMatchObject({
    kind: "unavailable",
    retryable: false,
    outcome: "unknown",
  });
  expect(service.seen).toEqual(["POST /vms/create"]);
});

/** In a process of its own, which takes bytes while this one sends: refuses at once, reads a MiB more, and closes. */
const REFUSING = `
require("node:net").createServer((socket) => {
  const text = JSON.stringify({ error: { kind: "policy", reason: "no", status: 403, retryable: false } });
  let bytes = 0;
  socket.on("error", () => undefined);
  socket.once("data", () => socket.write("HTTP/1.1 403 no\\r\\nconnection: close\\r\\ncontent-length: " + text.length + "\\r\\n\\r\\n" + text));
  socket.on("data", (part) => { bytes += part.length; if (bytes > 1048576) socket.destroySoon(); });
}).listen(process.argv[1], () => console.log("ready"));
`;

test("an upload that is refused while it is sent has the refusal, however fast its bytes are taken", async () => {
  const home = mkdtempSync(join(tmpdir(), "sdk-net-"));
  mkdirSync(join(home, "run"));
  const child = spawn(process.execPath, ["-e", REFUSING, join(home, "run", "service.sock")]);
  await once(child.stdout, "data");
  const client = createNodeClient({ home });
  open.push(async () => {
    client.close();
    child.kill();
    rmSync(home, { recursive: true, force: true });
  });
  async function* parts() {
    for (let count = 0; count < 64; count += 1) yield new Uint8Array(256 * 1024);
  }
  for (let round = 0; round < 20; round += 1)
    await expect(client.vm("vm_aaaaaaaaaaaaaaaa").trees.write("/x", parts())).rejects.toMatchObject({
      kind: "policy",
      message: "no",
    });
});

test("a command whose answer is lost says that its end is unknown", async () => {
  const { client } = await start((request) => {
    request.socket.destroy();
    return true;
  });
  await expect(client.vm("vm_aaaaaaaaaaaaaaaa").exec("true")).rejects.toMatchObject({
    ...{ kind: "unavailable", retryable: false, outcome: "unknown" },
    message:
      "Cannot follow job: the service, or the gateway before it, is gone; how the command ended is unknown",
  });
});

test("a read on a kept connection that was just closed is sent once more", async () => {
  let count = 0;
  const { client, service } = await start((request) => {
    count += 1;
    if (count !== 2) return false;
    request.socket.destroy();
    return true;
  });
  await client.health();
  await client.health();
  expect(service.seen).toHaveLength(3);
});

test("a read that fails on a new connection is not sent again", async () => {
  const { client, service } = await start((request) => {
    request.socket.destroy();
    return true;
  });
  await expect(client.health()).rejects.toMatchObject({ kind: "unavailable" });
  expect(service.seen).toHaveLength(1);
});

test("an answer that breaks off in its body is unavailable", async () => {
  const { client } = await start((_request, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("{", () => response.destroy());
    return true;
  });
  await expect(client.status()).rejects.toMatchObject({ kind: "unavailable", outcome: "none" });
  await expect(client.vms.create()).rejects.toMatchObject({
    ...{ kind: "unavailable", outcome: "unknown", retryable: false },
  });
});

test("answers that are no JSON, or errors that are not ours, are said as such", async () => {
  const answers: [number, string, string][] = [
    [200, "<html>", "internal"],
    [503, "busy", "unavailable"],
    [418, '{"error":"teapot"}', "internal"],
    [500, '{"error":{"kind":"new_kind","reason":"Cannot do"}}', "internal"],
  ];
  for (const [status, body, kind] of answers) {
    const { client } = await start((_request, response) => {
      response.writeHead(status).end(body);
      return true;
    });
    await expect(client.status()).rejects.toMatchObject({ kind });
  }
});

test("an upload that is refused early ends with the refusal", async () => {
  const { client } = await start((request, response) => {
    if (request.method !== "PUT") return false;
    const error = { kind: "too_large", reason: "Cannot write file: too large", retryable: false };
    response.writeHead(413, { connection: "close" }).end(JSON.stringify({ error }));
    return true;
  });
  async function* endless() {
    for (;;) yield new Uint8Array(65_536);
  }
  await expect(client.vm("vm_aaaaaaaaaaaaaaaa").files.write("x", endless())).rejects.toMatchObject({
    kind: "too_large",
  });
});

test("a source that fails stops its upload with its own error", async () => {
  const { client } = await start((request) => {
    request.resume();
    return true;
  });
  async function* broken() {
    yield new Uint8Array(10);
    throw new Error("disk unplugged");
  }
  await expect(client.vm("vm_aaaaaaaaaaaaaaaa").files.write("x", broken())).rejects.toThrow(/disk unplugged/);
});

test("a held line that is broken, oversize, an error or missing fails the hold", async () => {
  const cases: [string, string][] = [
    ["{}\n", "internal"],
    ["nonsense\n", "internal"],
    ['{"error":{"kind":"disk_floor","reason":"Cannot create VM: 1 GiB left"}}\n', "disk_floor"],
    ["", "unavailable"],
    ["x".repeat(1_100_000), "too_large"],
  ];
  for (const [line, kind] of cases) {
    const { client } = await start((_request, response) => {
      response.writeHead(200).end(line);
      return true;
    });
    await expect(client.hold()).rejects.toMatchObject({ kind });
  }
});
