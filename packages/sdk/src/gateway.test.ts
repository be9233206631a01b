import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { createClient } from "./client.ts";
import { createClient as createGatewayClient } from "./node.ts";
import type { FixtureOptions } from "./testing/index.ts";
import { type Rig, startWays, WAYS, type Way } from "./testing/ways.ts";

const open: Rig[] = [];
afterEach(async () => {
  for (const rig of open.splice(0)) await rig.close();
});
async function start(options: Omit<FixtureOptions, "home"> = {}): Promise<Rig> {
  const rig = await startWays(options);
  open.push(rig);
  return rig;
}
const GATEWAY_WAYS = WAYS.filter((way): way is Exclude<Way, "socket"> => way !== "socket");

describe.each(GATEWAY_WAYS)("over the %s", (way) => {
  test("a rotated token is read again, and a refused mutation was not executed before it is sent once more", async () => {
    const rig = await start();
    const client = rig.client(way);
    await client.health();
    await client.vms.list();
    await rig.rotate();
    const info = await client.vms.create({ name: "one" });
    expect((await client.vms.list()).map(({ id }) => id)).toEqual([info.id]);
    expect(rig.service.seen.filter((line) => line.startsWith("POST /vms/create"))).toHaveLength(1);
  });

  test("a rotated token is read again for streams and events", async () => {
    const rig = await start();
    const client = rig.client(way);
    const vm = client.vm((await client.vms.create()).id);
    await rig.rotate();
    expect(await vm.stream("exit 3")).toMatchObject({ exit_code: 3 });
    await rig.rotate();
    for await (const event of client.events()) {
      expect(event.type).toBe("hello");
      break;
    }
  });

  test("a rotation ends what the old token opened, and the job goes on where it was left", async () => {
    const rig = await start();
    const vm = rig.client(way).vm((await rig.client(way).vms.create()).id);
    const job = vm.stream({ command: "echo one; read line; echo two", stdin: true });
    const id = await job.id;
    const reader = job[Symbol.asyncIterator]();
    const first = await reader.next();
    await rig.rotate();
    await expect(reader.next()).rejects.toMatchObject({ kind: "unavailable", outcome: "unknown" });
    const again = vm.attach(id, job.offset);
    await again.write("go\n");
    expect(Buffer.from(first.value?.data ?? []).toString()).toBe("one\n");
    expect((await again.output()).stdout).toBe("two\n");
    expect((await vm.attach(id).output()).stdout).toBe("one\ntwo\n");
  });

  test("a stream that was refused is not sent again, and the next call has the new token", async () => {
    const rig = await start();
    const client = rig.client(way);
    const { files } = client.vm((await client.vms.create()).id);
    await rig.rotate();
    async function* source() {
      yield new Uint8Array(10);
    }
    await expect(files.write("x", source())).rejects.toMatchObject({
      kind: "unauthorized",
      status: 401,
      outcome: "none",
    });
    expect(await files.write("x", source())).toEqual({ bytes: 10 });
  });

  test("a service that is away, and one that goes away during a mutation, are told apart", async () => {
    const rig = await start({
      intercept: (request) => {
        if (request.url !== "/vms/create") return false;
        request.socket.destroy();
        return true;
      },
    });
    const client = rig.client(way);
    await expect(client.vms.create()).rejects.toMatchObject({
      kind: "service_away",
      retryable: false,
      outcome: "unknown",
    });
    expect(rig.service.seen).toEqual(["POST /vms/create"]);
    await rig.service.close();
    await expect(client.vms.create()).rejects.toMatchObject({
      kind: "service_away",
      retryable: true,
      outcome: "none",
    });
  });

  test("a gateway that is away is unavailable, and nothing was executed", async () => {
    const rig = await start();
    const client = rig.client(way);
    await rig.gateway.close();
    const message = `Cannot reach ${rig.url}: ECONNREFUSED`;
    await expect(client.vms.create()).rejects.toMatchObject({
      ...{ kind: "unavailable", outcome: "none", message },
    });
    await expect(client.vm("vm_aaaaaaaaaaaaaaaa").stream("true")).rejects.toMatchObject({
      ...{ kind: "unavailable", message },
    });
  });

  test("a wait for an answer ends, and so does one that is aborted", async () => {
    const rig = await start({ intercept: () => true });
    const client = rig.client(way);
    await expect(client.vms.list({ timeoutMs: 30 })).rejects.toMatchObject({
      kind: "timeout",
      outcome: "none",
    });
    await expect(client.vms.create({}, { timeoutMs: 30 })).rejects.toMatchObject({ outcome: "unknown" });
    const signal = AbortSignal.timeout(30);
    await expect(client.vms.list({ signal })).rejects.toMatchObject({ kind: "cancelled" });
  });

  test("a source that fails stops its upload with its own error", async () => {
    const rig = await start();
    const client = rig.client(way);
    const vm = client.vm((await client.vms.create()).id);
    async function* broken() {
      yield new Uint8Array(10);
      throw new Error("disk unplugged");
    }
    await expect(vm.files.write("x", broken())).rejects.toThrow(/disk unplugged/);
  });
});

test("a wrong token is refused without a second try, and too many of them are throttled with a time", async () => {
  const { url } = await start();
  for (const create of [createClient, createGatewayClient]) {
    const client = create({ url, token: "x".repeat(64) });
    await expect(client.status()).rejects.toMatchObject({ kind: "unauthorized", status: 401 });
    await client.health();
  }
  const client = createGatewayClient({ url, token: "x".repeat(64) });
  for (let at = 0; at < 18; at += 1) await client.status().catch(() => undefined);
  await expect(client.status()).rejects.toMatchObject({
    kind: "throttled",
    retryable: true,
    retryAfterMs: expect.any(Number),
  });
});

test("a token file is read at the first call, and once it exists", async () => {
  const rig = await start();
  const tokenFile = join(rig.home, "later.token");
  const client = createGatewayClient({ url: rig.url, tokenFile });
  await expect(client.status()).rejects.toMatchObject({ kind: "unauthorized" });
  writeFileSync(tokenFile, `${rig.token()}\n`);
  expect((await client.status()).version).toBe("0.1.0");
});

test("a token that would change a header is refused, and is in no message", async () => {
  for (const token of ["a b", "a\r\nx: y", " ", "é", "a,b"]) {
    const failure = await createClient({ url: "http://127.0.0.1:1", token })
      .status()
      .catch((thrown: Error) => thrown);
    expect(failure).toMatchObject({ kind: "unauthorized" });
    if (token !== " ") expect(JSON.stringify(failure)).not.toContain(token);
  }
});

test.each([
  "ftp://127.0.0.1",
  "127.0.0.1:19222",
  "nonsense",
  "http://user:secret@127.0.0.1",
  "http://127.0.0.1/?token=secret",
  "http://127.0.0.1/#x",
])("%s is no address of a gateway", (url) => {
  for (const create of [createClient, createGatewayClient]) {
    const make = () => create({ url, token: "t" });
    expect(make).toThrow(/Cannot use the gateway's URL/);
    expect(make).not.toThrow(/secret/);
  }
});

test("a browser's refused stream gets its reason from a plain call", async () => {
  const client = (await start()).client("gateway over fetch");
  await expect(client.vm("vm_aaaaaaaaaaaaaaaa").stream("true")).rejects.toMatchObject({
    kind: "vm_not_found",
    status: 404,
  });
});

test("a runtime without WebSocket says so", async () => {
  const rig = await start();
  const client = createClient({ url: rig.url, token: rig.token });
  if (globalThis.WebSocket !== undefined) return;
  await expect(client.vm("vm_aaaaaaaaaaaaaaaa").stream("true")).rejects.toThrow(/no WebSocket/);
});

test("where uploads cannot stream, what was collected is sent", async () => {
  const rig = await start();
  const client = createClient({ url: rig.url, token: rig.token, streamsUploads: false });
  const { fs } = client.vm((await client.vms.create()).id);
  async function* parts() {
    yield "one ";
    yield new TextEncoder().encode("two");
  }
  await fs.writeFile("x", parts());
  await fs.writeFile("y", new Blob(["blob"]));
  expect([await fs.readFile("x", "utf8"), await fs.readFile("y", "utf8")]).toEqual(["one two", "blob"]);
});
