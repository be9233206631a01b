import type { ExecResult, VmInfo } from "@capsem/api";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Gateway, type Rig, startRig, until } from "../../../tests/support/rig.ts";
import { type Connected, connectedOf } from "./testing/connected.ts";
import { type Program, packProgram } from "./testing/program.ts";

let rig: Rig;
let gateway: Gateway;
let program: Program;
let mcp: Connected;
beforeAll(async () => {
  program = packProgram();
  rig = await startRig({ pool: 1 });
  gateway = await rig.startGateway();
  const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } });
  const args = [program.path, "--gateway-url", gateway.url, "--token-file", gateway.tokenFile];
  await client.connect(new StdioClientTransport({ command: process.execPath, args }));
  await client.listTools();
  mcp = connectedOf(client);
});
afterAll(async () => {
  await mcp?.close();
  await rig?.stop();
  program?.close();
});

test("a client of the protocol makes a VM, works in it and deletes it", async () => {
  const { id: vm_id } = await mcp.value<VmInfo>("capsem_create", { memory: 0.5, env: { COLOUR: "blue" } });
  const content = "#!/bin/bash\nuname -r\necho $COLOUR\nexit 3\n";
  await mcp.value("capsem_write_file", { vm_id, path: "new/folder/run.sh", content });
  const command = "bash new/folder/run.sh";
  const ran = await mcp.value<ExecResult>("capsem_exec", { vm_id, command, timeout_secs: 30 });
  expect(ran).toMatchObject({ exit_code: 3, stdout: { data: expect.stringMatching(/cloud.*\nblue\n$/) } });
  expect(await mcp.value("capsem_read_file", { vm_id, path: "new/folder/run.sh" })).toMatchObject({
    data: content,
  });
  expect(JSON.stringify(await mcp.value("capsem_list_files", { vm_id, path: "new" }))).toContain("folder");
  expect(await mcp.failure("capsem_read_file", { vm_id, path: "none" })).toMatchObject({
    kind: "http",
    code: "file_not_found",
  });
  expect(await mcp.value("capsem_delete", { vm_id })).toEqual({ ok: true });
  expect(await mcp.failure("capsem_info", { vm_id })).toMatchObject({ code: "vm_not_found" });
});

test("cancelling capsem_exec ends its processes in the guest, cancelling capsem_run its VM", async () => {
  const { id: vm_id } = await mcp.value<VmInfo>("capsem_create");
  const vm = rig.client.vm(vm_id);
  const started = async (name: string, args: Record<string, unknown>, isUp: () => Promise<boolean>) => {
    const abort = new AbortController();
    const call = mcp.call(name, args, { signal: abort.signal }).catch(() => "gone");
    await until(`${name} has begun`, 30_000, isUp);
    abort.abort();
    expect(await call).toBe("gone");
  };
  const sleepers = async () => Number(await rig.sh(vm, "pgrep -cx sleep || true"));
  const args = { vm_id, command: "sleep 300", timeout_secs: 300 };
  await started("capsem_exec", args, async () => (await sleepers()) === 1);
  await until("the command is gone", 10_000, async () => (await sleepers()) === 0);
  const ids = async () => (await rig.client.vms.list()).map(({ id }) => id);
  await started(
    "capsem_run",
    { command: "sleep 300", timeout_secs: 300 },
    async () => (await ids()).length === 2,
  );
  await until("the VM is gone", 10_000, async () => (await ids()).length === 1);
  expect(await ids()).toEqual([vm_id]);
});
