import { randomBytes } from "node:crypto";
import { request } from "node:http";
import { expect, test } from "vitest";
import { createVm, errorOf, useRigs } from "./testing/use-rigs.ts";

const rigWith = useRigs();

test("bytes go in and come out as they are, whole and in windows", async () => {
  const rig = await rigWith();
  const { client } = rig;
  const content = `/vms/${await createVm(rig)}/files/content`;
  const bytes = randomBytes(3_000_000);
  const put = await client.call("PUT", `${content}?path=d%C3%A4ta`, { bytes });
  expect(put.json()).toEqual({ bytes: bytes.length });
  const whole = await client.get(`${content}?path=d%C3%A4ta`);
  expect(whole.bytes.equals(bytes)).toBe(true);
  expect(whole.headers["x-capsem-size"]).toBe("3000000");
  const part = await client.get(`${content}?path=d%C3%A4ta&offset=100&length=50`);
  expect(part.bytes.equals(bytes.subarray(100, 150))).toBe(true);
  expect(part.headers["x-capsem-size"]).toBe("3000000");
  await client.call("PUT", `${content}?path=empty`, { bytes: Buffer.alloc(0) });
  expect((await client.get(`${content}?path=empty`)).bytes).toHaveLength(0);
});

test("directories, stats and renames pass through", async () => {
  const rig = await rigWith();
  const { client } = rig;
  const files = `/vms/${await createVm(rig)}/files`;
  expect((await client.post(`${files}/mkdir`, { path: "a/b", parents: true })).json()).toEqual({ ok: true });
  await client.call("PUT", `${files}/content?path=a/one`, { bytes: Buffer.from("1") });
  expect((await client.get(`${files}/list?path=a`)).json()).toMatchObject({
    entries: [
      { name: "b", type: "directory" },
      { name: "one", type: "file", size: 1 },
    ],
    total: 2,
    more: false,
  });
  expect((await client.post(`${files}/rename`, { path: "a/one", to: "a/two" })).status).toBe(200);
  expect((await client.get(`${files}/stat?path=a/two`)).json()).toMatchObject({ size: 1 });
  expect((await client.delete(`${files}/content?path=a&recursive=true`)).status).toBe(200);
  expect(errorOf(await client.get(`${files}/stat?path=a`))).toMatchObject({
    kind: "file_not_found",
    status: 404,
  });
  expect(errorOf(await client.get(`${files}/content?path=none`)).kind).toBe("file_not_found");
  expect(errorOf(await client.post(`${files}/mkdir`, { path: "x", colour: 1 })).kind).toBe("invalid_input");
});

test("trees are opaque streams both ways", async () => {
  const rig = await rigWith();
  const tree = `/vms/${await createVm(rig)}/files/tree`;
  const bytes = randomBytes(1_000_000);
  expect((await rig.client.call("PUT", `${tree}?path=t`, { bytes })).json()).toEqual({ bytes: 1_000_000 });
  const back = await rig.client.get(`${tree}?path=t`);
  expect(back.bytes.equals(bytes)).toBe(true);
  expect(back.headers["content-type"]).toBe("application/x-tar");
});

test("a refused upload is answered at once with its kind", async () => {
  const rig = await rigWith();
  const content = `/vms/${await createVm(rig)}/files/content`;
  const refused = await rig.client.call("PUT", `${content}?path=!disk_full`, {
    bytes: Buffer.alloc(500_000),
  });
  expect(errorOf(refused)).toMatchObject({ kind: "disk_full", status: 507 });
  const declared = await rig.client
    .call("PUT", `${content}?path=x`, { headers: { "content-length": "99999999999" } })
    .catch((thrown: Error) => thrown.message);
  expect(typeof declared === "string" ? declared : errorOf(declared).kind).toMatch(/too_large|socket|reset/i);
});

test("a client that leaves in an upload or a download leaves no stream behind", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const content = `/vms/${id}/files/content`;
  await rig.client.call("PUT", `${content}?path=large`, { bytes: Buffer.alloc(30_000_000) });
  await new Promise<void>((resolve) => {
    const outgoing = request({ socketPath: rig.layout.socket, path: `${content}?path=large` }, (reply) => {
      reply.once("data", () => outgoing.destroy());
      reply.on("error", () => resolve());
    });
    outgoing.on("error", () => resolve());
    outgoing.end();
  });
  const upload = request({ socketPath: rig.layout.socket, path: `${content}?path=half`, method: "PUT" });
  upload.on("error", () => undefined);
  await new Promise((resolve) => upload.write(Buffer.alloc(100_000), resolve));
  upload.destroy();
  const vm = rig.service.registry.get(id);
  await expect.poll(() => vm.activeCount, { timeout: 30_000 }).toBe(0);
  await expect.poll(() => vm.run?.streamCount, { timeout: 30_000 }).toBe(0);
});

test("logs are sorted by source and read in windows", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  for (const line of ["boot one", "boot two", "\u001b[2Jevil"]) {
    await rig.client.post(`/vms/${id}/exec`, { argv: ["!log", "console", line] });
  }
  const logs = async (query: string) => (await rig.client.get(`/vms/${id}/logs?${query}`)).json();
  await expect
    .poll(() => logs("source=console"), { timeout: 30_000 })
    .toEqual({ lines: ["boot one", "boot two", "\\x1b[2Jevil"], truncated: false });
  expect(await logs("source=console&tail=1")).toEqual({ lines: ["\\x1b[2Jevil"], truncated: true });
  expect(await logs("grep=two")).toEqual({ lines: ["console: boot two"], truncated: false });
  expect(JSON.stringify(await logs(""))).toMatch(/console: boot one.*owner: .*claimed/);
  expect(JSON.stringify(await logs("source=owner"))).toContain("claimed");
  expect(await logs("source=guest")).toEqual({ lines: [], truncated: false });
});
