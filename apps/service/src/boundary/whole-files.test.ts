import { existsSync } from "node:fs";
import { request } from "node:http";
import { expect, test, vi } from "vitest";
import { errorOf } from "../testing/use-rigs.ts";
import { type BoundaryRig, useBoundaryRigs } from "./testing/boundary-rig.ts";
import { ruleOn } from "./testing/fake-parts.ts";

const rigWith = useBoundaryRigs();
const contentOf = (id: string, path: string, more = "") => `/vms/${id}/files/content?path=${path}${more}`;
const NO_CANARY = `[profiles.rules.guard]\naction = "block"\nmatch = 'file.content.contains("CANARY")'\nreason = "no"\n`;

async function boxed(rules = "") {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  const put = (text: string, more = "", headers: Record<string, string> = {}) =>
    rig.client.call("PUT", contentOf(id, "a", more), { bytes: Buffer.from(text), headers });
  const get = (more = "") => rig.client.get(contentOf(id, "a", more));
  await put("xxCANARYxx");
  rig.policy.rules(rules);
  return { rig, id, put, get };
}

test("the attack: two windows of a file give what no rule lets out, and with the gate neither does", async () => {
  const { rig, get } = await boxed();
  const windows = ["&offset=0&length=5", "&offset=5&length=5"];
  const read = async () => Promise.all(windows.map(async (more) => (await get(more)).bytes.toString()));
  expect((await read()).join("")).toBe("xxCANARYxx");
  rig.policy.rules(NO_CANARY);
  expect(errorOf(await get()).kind).toBe("policy");
  for (const more of [...windows, "&offset=1", "&length=9"]) {
    const refused = errorOf(await get(more));
    expect(refused, more).toMatchObject({ kind: "policy", rule_id: "profiles.rules.guard" });
    expect(refused.reason).toContain("judges whole files");
    expect(refused.reason).not.toContain("ANA");
  }
});

test("the attack: two windows write what no rule lets in, and with the gate neither does", async () => {
  const { rig, put } = await boxed();
  const write = async () => [await put("CAN"), await put("ARY", "&offset=3")];
  expect((await write()).map(({ status }) => status)).toEqual([200, 200]);
  rig.policy.rules(NO_CANARY);
  expect((await put("CAN")).status).toBe(200);
  expect(errorOf(await put("ARY", "&offset=3"))).toMatchObject({
    kind: "policy",
    rule_id: "profiles.rules.guard",
    reason: expect.stringContaining("judges whole files"),
  });
  expect(rig.ledger.of("fs_events").at(-1)).toMatchObject({ act: "import", outcome: "blocked" });
});

test("a rule about size judges whole files too: many small windows are a large one", async () => {
  const { put } = await boxed(ruleOn("file.import", "block", " && file.import.size > 10"));
  expect(errorOf(await put("more than ten")).kind).toBe("policy");
  expect((await put("ten")).status).toBe(200);
  expect(errorOf(await put(" more", "&offset=3")).reason).toContain("judges whole files");
});

test("a window that is all of the file is judged by its content, and where no rule hangs windows pass", async () => {
  const { rig, put, get } = await boxed(NO_CANARY);
  expect(errorOf(await get("&length=10")).reason).not.toContain("whole files");
  await put("harmless");
  for (const more of ["&length=8", "&offset=0&length=100"]) expect((await get(more)).status, more).toBe(200);
  // Of another VM, or of content that is only marked.
  rig.policy.rules(`${NO_CANARY.replace("match = '", `match = 'vm.name == "other" && `)}
[profiles.rules.mark]\naction = "allow"\nmatch = 'file.content.contains("x")'\npriority = 900\ndetection_level = "low"\n`);
  expect((await get("&offset=1&length=2")).bytes.toString()).toBe("ar");
  expect((await put("A", "&offset=1")).status).toBe(200);
});

test("rules see whether it is a window and where, the names of an environment, and whether input comes", async () => {
  const { rig, id, put, get } = await boxed(
    `${ruleOn("file.export", "block", " && !file.export.is_whole && file.export.offset > 4")}
[profiles.rules.preload]\naction = "block"\nmatch = 'process.exec.env_names.exists(name, name == "EVIL")'\n
[profiles.rules.input]\naction = "block"\nmatch = 'event.type == "process.exec" && process.exec.has_stdin'\n`,
  );
  expect((await get("&offset=4")).status).toBe(200);
  expect(errorOf(await get("&offset=5")).kind).toBe("policy");
  expect((await put("x", "&offset=90")).status).toBe(200);
  const exec = (more: object) => rig.client.post(`/vms/${id}/exec`, { command: "true", ...more });
  expect((await exec({ env: { GOOD: "EVIL" } })).status).toBe(200);
  expect(errorOf(await exec({ env: { EVIL: "1" } })).kind).toBe("policy");
  expect(errorOf(await exec({ stdin: { encoding: "utf8", data: "" } })).kind).toBe("policy");
});

test("an upload that began under other rules is judged by those that are in force when it is judged", async () => {
  const { rig, id } = await boxed(ruleOn("file.import", "block", ' && file.import.content == "another"'));
  const looks = vi.spyOn(rig.policy, "snapshot");
  const upload = request({ socketPath: rig.socket, path: contentOf(id, "late"), method: "PUT" });
  const answered = new Promise<number>((resolve, reject) => {
    upload.on("error", reject);
    upload.on("response", (reply) => {
      reply.resume();
      resolve(reply.statusCode ?? 0);
    });
  });
  // Its length is not said, and its content is waited for.
  upload.write("x");
  await expect.poll(() => looks.mock.calls.length).toBeGreaterThan(1);
  rig.policy.rules(ruleOn("file.import", "block", " && file.import.size > 10"));
  upload.end(Buffer.alloc(70_000));
  expect(await answered).toBe(400);
  expect(existsSync(rig.guestFile(id, "late"))).toBe(false);
});

test("an approval of an upload is for its bytes: others, of the same length, are asked about again", async () => {
  const { rig, put } = await boxed(ruleOn("file.import", "ask"));
  const asked = async (text: string, more = "") => {
    const before = rig.asks.held.length;
    const reply = put(text, more);
    await expect.poll(() => rig.asks.held.length).toBe(before + 1);
    const held = rig.asks.held[before];
    held?.resolve("approved");
    expect((await reply).status).toBe(200);
    return held?.asked;
  };
  const first = await asked("rm -rf build");
  expect((await asked("rm -rf build"))?.digest).toBe(first?.digest);
  expect((await asked("rm -rf /home"))?.digest).not.toBe(first?.digest);
  expect(first).toMatchObject({ onlyOnce: null, bound: ["content"] });
  // No rule reads it, so it is in no event.
  expect(rig.ledger.text).not.toContain("rm -rf");
  expect((await rig.client.get("/vms/list")).status).toBe(200);
  for (const size of [64 * 1024, 64 * 1024 + 1, 300_000]) {
    const large = await asked("x".repeat(size));
    expect(large?.onlyOnce === null, String(size)).toBe(size <= 64 * 1024);
  }
});

test("of a tree nothing but its size is known, so it is approved for one call", async () => {
  const { rig, id } = await boxed(ruleOn("file.import", "ask"));
  const reply = rig.client.call("PUT", `/vms/${id}/files/tree?path=t`, { bytes: Buffer.alloc(2_000) });
  await expect.poll(() => rig.asks.held.length).toBe(1);
  expect(rig.asks.held[0]?.asked).toMatchObject({
    title: "import the tree /workspace/t",
    bound: ["content"],
  });
  expect(rig.asks.held[0]?.asked.onlyOnce).toContain("of a tree");
  rig.asks.held[0]?.resolve("denied");
  expect(errorOf(await reply).kind).toBe("policy");
});

test("a name can be kept from whoever would take it, by create, by rename and by persist", async () => {
  const rig: BoundaryRig = await rigWith();
  const box = await rig.create({ name: "box" });
  const temporary = await rig.create({});
  const take = async (name: string) => [
    await rig.client.post("/vms/create", { name }),
    await rig.client.post(`/vms/${box}/rename`, { name }),
    await rig.client.post(`/vms/${temporary}/persist`, { name }),
  ];
  // What a rule about the bearer's name alone does.
  rig.policy.rules(ruleOn("vm.lifecycle", "block", ' && vm.name == "prod"'));
  expect((await rig.client.post(`/vms/${box}/rename`, { name: "prod" })).status).toBe(200);
  expect(errorOf(await rig.client.post(`/vms/${box}/rename`, { name: "box" })).kind).toBe("policy");
  rig.policy.rules(ruleOn("vm.lifecycle", "block", ' && vm.lifecycle.name == "ci"'));
  for (const reply of await take("ci")) expect(errorOf(reply).kind).toBe("policy");
  const other = await take("fine");
  expect(other.map(({ status }) => status === 403)).toEqual([false, false, false]);
});
