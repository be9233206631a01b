import { request as httpRequest } from "node:http";
import { expect, test } from "vitest";
import { useRigs } from "../../service/src/testing/use-rigs.ts";
import { answerOf, readReply } from "./testing/http-client.ts";
import { useGateways } from "./testing/use-gateways.ts";

const serviceWith = useRigs();
const { start } = useGateways();

async function startBoth() {
  const service = await serviceWith();
  return { service, ...(await start({ home: service.layout.home })) };
}

test("a VM lives its life through the gateway", async () => {
  const { client } = await startBoth();
  expect((await client.get("/health")).status).toBe(200);
  const created = await client.call("POST", "/vms/create", { body: '{"name":"box"}' });
  expect(created.status, created.bytes.toString()).toBe(200);
  const { id } = JSON.parse(created.bytes.toString()) as { id: string };
  const list = await client.get("/vms/list");
  expect(JSON.parse(list.bytes.toString())).toMatchObject({ vms: [{ id, name: "box", state: "running" }] });
  const exec = await client.call("POST", `/vms/${id}/exec`, { body: '{"command":"echo out; exit 3"}' });
  expect(JSON.parse(exec.bytes.toString())).toMatchObject({ exit_code: 3, stdout: { data: "out\n" } });
  const bytes = Buffer.alloc(3_000_000, "abc");
  const file = `/vms/${id}/files/content?path=a.bin`;
  expect((await client.call("PUT", file, { body: bytes })).status).toBe(200);
  const read = await client.get(file);
  expect(read.headers["x-capsem-size"]).toBe("3000000");
  expect(read.bytes.equals(bytes)).toBe(true);
  expect((await client.call("DELETE", `/vms/${id}/delete`)).status).toBe(200);
});

test("the service's own refusals come through as they are", async () => {
  const { client } = await startBoth();
  const missing = "vm_aaaaaaaaaaaaaaaa";
  expect(await client.get(`/vms/${missing}/info`)).toMatchObject({ status: 404, kind: "vm_not_found" });
  expect(await client.get("/vms/list?x=1")).toMatchObject({ status: 400, kind: "invalid_input" });
  const notJson = await client.call("POST", "/vms/create", { body: "{" });
  expect(notJson).toMatchObject({ status: 400, kind: "invalid_input" });
});

test("a held create is destroyed with the client that leaves", async () => {
  const { client, service } = await startBoth();
  const outgoing = client.begin("POST", "/vms/create?hold=true");
  outgoing.on("error", () => undefined);
  outgoing.end("{}");
  const answer = await answerOf(outgoing);
  const first = await answer[Symbol.asyncIterator]().next();
  expect(JSON.parse(String(first.value))).toHaveProperty("id");
  outgoing.destroy();
  const vms = async () =>
    (JSON.parse((await client.get("/vms/list")).bytes.toString()) as { vms: unknown[] }).vms.length;
  await expect.poll(vms, { timeout: 20_000 }).toBe(0);
  expect(service.counts().folders).toBe(0);
});

test("an upload that the service refuses at once is answered with its reason, every time", async () => {
  const { client, service } = await startBoth();
  const body = Buffer.alloc(6_000_000);
  for (let count = 0; count < 30; count++) {
    const reply = await client.call("PUT", "/vms/vm_aaaaaaaaaaaaaaaa/files/content?path=a", { body });
    expect(reply).toMatchObject({ status: 404, kind: "vm_not_found" });
    const direct = httpRequest({
      socketPath: service.layout.socket,
      method: "PUT",
      path: "/vms/vm_aaaaaaaaaaaaaaaa/files/content?path=a",
      agent: false,
    });
    direct.end(body);
    expect(await readReply(await answerOf(direct))).toMatchObject({ status: 404, kind: "vm_not_found" });
  }
});

test("the service knows that the gateway asks", async () => {
  const { client, service } = await startBoth();
  await client.get("/vms/list");
  const act = service.log.find(({ message, route }) => message === "act" && route === "list");
  expect(act).toMatchObject({ requester: "gateway" });
});
