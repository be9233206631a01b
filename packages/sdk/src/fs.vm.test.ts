import { afterAll, beforeAll, expect, test } from "vitest";
import { type Rig, startRig } from "../../../tests/support/rig.ts";
import type { Client } from "./client.ts";
import { createClient } from "./node.ts";
import type { Vm } from "./vm.ts";

let rig: Rig;
let client: Client;
let vm: Vm;
beforeAll(async () => {
  rig = await startRig();
  const { url, tokenFile } = await rig.startGateway();
  client = createClient({ url, tokenFile });
  vm = await client.create();
});
afterAll(async () => {
  client?.close();
  await rig?.stop();
});

test("a real guest's refusals have the codes of node:fs", async () => {
  const { fs } = vm;
  await fs.mkdir("folder/inner", { recursive: true });
  await fs.writeFile("plain", "text");
  await vm.exec("ln -s loop loop; ln -s plain link; ln -s nowhere broken");
  const cases: [string, () => Promise<unknown>][] = [
    ["ENOENT", () => fs.readFile("none", "utf8")],
    ["ENOENT", () => fs.stat("broken")],
    ["ENOENT", () => fs.rm("none")],
    ["EEXIST", () => fs.mkdir("folder")],
    ["EISDIR", () => fs.readFile("folder")],
    ["ENOTDIR", () => fs.readdir("plain")],
    ["ENOTDIR", () => fs.stat("plain/x")],
    ["ENOTDIR", () => fs.writeFile("plain/x", "")],
    ["ENOTEMPTY", () => fs.rm("folder")],
    ["EACCES", () => fs.readFile("/etc/shadow")],
    ["ELOOP", () => fs.stat("loop")],
  ];
  await fs.writeFile("made/with/it", "");
  expect(await fs.readdir("made")).toEqual(["with"]);
  await fs.rm("made", { recursive: true });
  const codes = [];
  for (const [code, work] of cases)
    codes.push([
      code,
      await work().catch((thrown: { code?: string; message: string }) => thrown.code ?? thrown.message),
    ]);
  expect(codes).toEqual(cases.map(([code]) => [code, code]));
  await fs.rm("none", { force: true });
  expect((await fs.stat("link")).size).toBe(4);
  expect((await fs.readdir(".", { recursive: true })).sort()).toEqual([
    "broken",
    "folder",
    "folder/inner",
    "link",
    "loop",
    "plain",
  ]);
});

test("files are appended to, streamed both ways, and keep their mode", async () => {
  const { fs } = vm;
  await fs.appendFile("log", "one\n", { mode: 0o600 });
  await fs.appendFile("log", "two\n");
  expect(await fs.readFile("log", "utf8")).toBe("one\ntwo\n");
  expect((await fs.stat("log")).mode).toBe(0o100600);
  async function* parts() {
    for (let at = 0; at < 32; at += 1) yield new Uint8Array(65_536).fill(at);
  }
  await fs.writeFile("large", parts());
  let [bytes, last] = [0, 0];
  for await (const part of fs.createReadStream("large", { start: 65_536 })) {
    bytes += part.length;
    last = part.at(-1) ?? 0;
  }
  expect([bytes, last]).toEqual([31 * 65_536, 31]);
});

test("a job is left, attached where it was left and replayed, over the gateway", async () => {
  const job = vm.stream({ command: "echo one; read line; echo two; exit 7", stdin: true });
  const id = await job.id;
  for await (const _ of job.lines()) break;
  job.detach();
  const again = vm.attach(id, job.offset);
  await again.write("go\n");
  expect(await again.output()).toMatchObject({ stdout: "two\n", exit_code: 7 });
  expect((await vm.attach(id).output()).stdout).toBe("one\ntwo\n");
});
