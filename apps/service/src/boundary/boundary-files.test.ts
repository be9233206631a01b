import { createHash, randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { request } from "node:http";
import { expect, test } from "vitest";
import { errorOf } from "../testing/use-rigs.ts";
import { type BoundaryRig, useBoundaryRigs } from "./testing/boundary-rig.ts";
import { ruleOn } from "./testing/fake-parts.ts";

const rigWith = useBoundaryRigs();
const KIB = 1024;

const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");
const lastFile = ({ ledger }: BoundaryRig) => ledger.of("fs_events").at(-1);
const contentOf = (id: string, path: string) => `/vms/${id}/files/content?path=${path}`;

/** The event of the last decision, as it was stored. */
function lastEvent({ ledger }: BoundaryRig): Record<string, unknown> {
  const { event, event_hash } = ledger.of("security_decision_events").at(-1) ?? {};
  const body = event ?? ledger.of("event_body_blobs").find(({ hash }) => hash === event_hash)?.body ?? "{}";
  return (JSON.parse(body) as { fields: Record<string, unknown> }).fields;
}

test("whole files are summed up as they pass, windows and trees are counted", async () => {
  const rig = await rigWith();
  const { client } = rig;
  const id = await rig.create({ name: "box" });
  const bytes = randomBytes(300_000);
  await client.call("PUT", contentOf(id, "sub/../a"), { bytes });
  const whole = { bytes: 300_000, sha256: sha256(bytes), outcome: "done" };
  expect(lastFile(rig)).toMatchObject({ act: "import", path: "/workspace/a", is_tree: false, ...whole });
  expect((await client.get(contentOf(id, "a"))).bytes.equals(bytes)).toBe(true);
  expect(lastFile(rig)).toMatchObject({ act: "export", path: "/workspace/a", ...whole });
  await client.get(`${contentOf(id, "a")}&offset=10&length=50`);
  expect(lastFile(rig)).toMatchObject({ act: "export", bytes: 50, sha256: null });
  await client.call("PUT", `${contentOf(id, "a")}&offset=10`, { bytes });
  expect(lastFile(rig)).toMatchObject({ act: "import", bytes: 300_000, sha256: null });
  await client.call("PUT", `/vms/${id}/files/tree?path=t`, { bytes });
  expect(lastFile(rig)).toMatchObject({ act: "import", is_tree: true, bytes: 300_000, sha256: null });
  await client.get(`/vms/${id}/files/tree?path=t`);
  expect(lastFile(rig)).toMatchObject({ act: "export", is_tree: true, bytes: 300_000, sha256: null });
  await client.post(`/vms/${id}/files/rename`, { path: "a", to: "/b" });
  expect(lastFile(rig)).toMatchObject({
    act: "rename",
    path: "/workspace/a",
    to_path: "/b",
    outcome: "done",
  });
  expect(lastEvent(rig)).toMatchObject({ "file.delete.path": "/workspace/a", "file.create.path": "/b" });
});

test("bytes are not looked at where no rule reads them", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  rig.policy.rules(ruleOn("file.import", "block", ' && file.import.path == "/etc/passwd"'));
  await rig.client.call("PUT", contentOf(id, "a"), { bytes: Buffer.from("CANARY") });
  expect(lastEvent(rig)).toMatchObject({ "file.import.path": "/workspace/a", "file.import.size": 6 });
  expect(rig.ledger.text).not.toContain("CANARY");
  for (const path of ["/etc/passwd", "../etc/passwd", "/etc/./x/../passwd", "//etc//passwd"]) {
    const refused = await rig.client.call("PUT", contentOf(id, path), { bytes: Buffer.from("x") });
    expect(errorOf(refused).kind, path).toBe("policy");
  }
});

const SIZES = [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 64 * KIB + 2, 200 * KIB, 1024 * KIB];

test("where a rule reads them, every byte still comes through, at any size", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  rig.policy.rules(
    `[profiles.rules.guard]\naction = "block"\nmatch = 'file.content.contains("FORBIDDEN")'\nreason = "no"\n`,
  );
  for (const size of SIZES) {
    const bytes = randomBytes(size);
    const put = await rig.client.call("PUT", contentOf(id, "a"), { bytes });
    expect(put.json(), String(size)).toEqual({ bytes: size });
    expect(lastEvent(rig)["file.truncated"], String(size)).toBe(size > 64 * KIB);
    const got = await rig.client.get(contentOf(id, "a"));
    expect(got.bytes.equals(bytes), String(size)).toBe(true);
    expect(lastFile(rig)).toMatchObject({ act: "export", bytes: size, sha256: sha256(bytes) });
    expect(lastEvent(rig)).toMatchObject({ "file.export.size": size, "file.truncated": size > 64 * KIB });
  }
});

test("content that a rule refuses neither comes into the guest nor leaves it", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  const forbidden = Buffer.concat([
    Buffer.alloc(60_000, "a"),
    Buffer.from("FORBIDDEN"),
    Buffer.alloc(500_000),
  ]);
  await rig.client.call("PUT", contentOf(id, "inside"), { bytes: forbidden });
  rig.spy(id);
  rig.policy.rules(
    `[profiles.rules.guard]\naction = "block"\nmatch = 'file.content.contains("FORBIDDEN")'\nreason = "no"\n`,
  );
  const put = await rig.client.call("PUT", contentOf(id, "outside"), { bytes: forbidden });
  expect(errorOf(put)).toMatchObject({ kind: "policy", status: 403 });
  expect(rig.calls).toEqual([]);
  expect(existsSync(rig.guestFile(id, "outside"))).toBe(false);
  const got = await rig.client.get(contentOf(id, "inside"));
  expect(errorOf(got)).toMatchObject({ kind: "policy", status: 403 });
  expect(got.bytes.toString()).not.toContain("FORBIDDEN");
  expect(rig.ledger.of("fs_events").slice(-2)).toMatchObject([
    { act: "import", outcome: "blocked" },
    { act: "export", outcome: "blocked" },
  ]);
  const { run } = rig.registry.get(id);
  await expect.poll(() => run?.streamCount, { timeout: 30_000 }).toBe(0);
});

test("a size that is not said is not passed by a rule that reads it", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  rig.policy.rules(ruleOn("file.import", "block", " && file.import.size > 1000"));
  const put = (bytes: Buffer, headers: Record<string, string>) =>
    rig.client.call("PUT", contentOf(id, "a"), { bytes, headers });
  expect(errorOf(await put(Buffer.alloc(2_000), {})).kind).toBe("policy");
  expect((await put(Buffer.alloc(500), {})).status).toBe(200);
  const unsaid = await put(Buffer.alloc(2_000), { "transfer-encoding": "chunked" });
  expect(errorOf(unsaid)).toMatchObject({ kind: "invalid_input" });
  expect(errorOf(unsaid).reason).toContain("content-length");
  expect(readFileSync(rig.guestFile(id, "a"))).toHaveLength(500);
});

test("a client that leaves midway ends its row as cancelled, once", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  await rig.client.call("PUT", contentOf(id, "large"), { bytes: Buffer.alloc(30_000_000) });
  await new Promise<void>((resolve) => {
    const outgoing = request({ socketPath: rig.socket, path: contentOf(id, "large") }, (reply) => {
      reply.once("data", () => outgoing.destroy());
      reply.on("error", () => resolve());
    });
    outgoing.on("error", () => resolve());
    outgoing.end();
  });
  await expect.poll(() => rig.ledger.of("fs_events").length, { timeout: 30_000 }).toBe(2);
  expect(lastFile(rig)).toMatchObject({ act: "export", outcome: "cancelled", sha256: null });
  expect(lastFile(rig)?.bytes).toBeLessThan(30_000_000);
  const upload = request({ socketPath: rig.socket, path: contentOf(id, "half"), method: "PUT" });
  upload.on("error", () => undefined);
  await new Promise((resolve) => upload.write(Buffer.alloc(100_000), resolve));
  await expect.poll(() => rig.registry.get(id).activeCount, { timeout: 30_000 }).toBe(1);
  upload.destroy();
  await expect.poll(() => rig.ledger.of("fs_events").length, { timeout: 30_000 }).toBe(3);
  expect(lastFile(rig)).toMatchObject({ act: "import", outcome: "cancelled", sha256: null });
});

test("a refused upload and a file that is not there end as failed", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  await rig.client.call("PUT", contentOf(id, "!disk_full"), { bytes: Buffer.alloc(10) });
  expect(lastFile(rig)).toMatchObject({ act: "import", outcome: "failed", error: "disk_full", sha256: null });
  await rig.client.get(contentOf(id, "none"));
  expect(lastFile(rig)).toMatchObject({ act: "export", outcome: "failed", error: "file_not_found" });
  rig.policy.rules(ruleOn("file.export", "allow", ' && file.content != ""'));
  // It could not be opened, so there is nothing that could be judged or done.
  const rows = rig.ledger.of("fs_events").length;
  expect(errorOf(await rig.client.get(contentOf(id, "none"))).kind).toBe("file_not_found");
  expect(rig.ledger.of("fs_events")).toHaveLength(rows);
});
