import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type ExecResult, TOOLS, type VmInfo } from "@capsem/api";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { useGateways } from "../../gateway/src/testing/use-gateways.ts";
import { tokenPath } from "../../gateway/src/token-file.ts";
import { type Rig, startRig } from "../../service/src/testing/rig.ts";
import { startAskingGateway } from "./testing/asking-gateway.ts";
import { connectedOf, ERAS } from "./testing/connected.ts";
import { type FixtureGateway, startFixtureGateway } from "./testing/fixture-gateway.ts";
import { type Program, packProgram } from "./testing/program.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 120_000 });

let program: Program;
let rig: Rig;
let gateway: FixtureGateway;
let tokenFile: string;
const clients: Client[] = [];

beforeAll(async () => {
  program = packProgram();
  rig = await startRig();
  gateway = await startFixtureGateway(rig.layout.socket);
  tokenFile = join(program.folder, "token");
  writeFileSync(tokenFile, `${gateway.token}\n`);
});
afterEach(async () => {
  for (const client of clients.splice(0)) await client.close();
});
afterAll(async () => {
  await gateway?.close();
  await rig?.close();
  program.close();
});

const gateways = useGateways();
const connect = async (
  options: ConstructorParameters<typeof Client>[1] = {},
  target: { url: string; tokenFile: string } = { url: gateway.url, tokenFile },
) => {
  const client = new Client({ name: "test", version: "1" }, options);
  clients.push(client);
  const args = [program.path, "--gateway-url", target.url, "--token-file", target.tokenFile];
  await client.connect(new StdioClientTransport({ command: process.execPath, args }));
  const names = (await client.listTools()).tools.map(({ name }) => name);
  expect(names.sort()).toEqual(Object.keys(TOOLS).sort());
  return connectedOf(client);
};

describe("the official client, over stdio and a gateway", () => {
  it.each([
    ["by handshake", {}, "2025-11-25"],
    ["with discovery first", { versionNegotiation: { mode: "auto" as const } }, "2026-07-28"],
    ["in 2026-07-28 alone", { versionNegotiation: { mode: { pin: "2026-07-28" } } }, "2026-07-28"],
  ])("uses the tools %s", async (_, options, revision) => {
    const mcp = await connect(options);
    expect(mcp.client.getNegotiatedProtocolVersion()).toBe(revision);
    const { id: vm_id } = await mcp.value<VmInfo>("capsem_create");
    const args = { vm_id, command: "echo $((6 * 7))", timeout_secs: 30 };
    expect(await mcp.value<ExecResult>("capsem_exec", args)).toMatchObject({ stdout: { data: "42\n" } });
    expect(await mcp.failure("capsem_exec", { vm_id })).toMatchObject({ kind: "invalid_input" });
    const abort = new AbortController();
    const call = mcp
      .call("capsem_exec", { vm_id, command: "sleep 300", timeout_secs: 300 }, { signal: abort.signal })
      .catch(() => "gone");
    const jobs = async () => {
      const answer = await rig.client.get(`/vms/${vm_id}/jobs/list`);
      return answer.json<{ jobs: { state: string }[] }>().jobs.map(({ state }) => state);
    };
    await expect.poll(jobs, { timeout: 20_000 }).toContain("running");
    abort.abort();
    expect(await call).toBe("gone");
    await expect.poll(jobs, { timeout: 20_000 }).toEqual(["done", "done"]);
    expect(await mcp.value("capsem_delete", { vm_id })).toEqual({ ok: true });
  });

  it("uses the tools through the real gateway, also after its token was rotated", async () => {
    const home = dirname(rig.layout.run);
    const { gateway: real } = await gateways.start({ home });
    const target = { url: `http://127.0.0.1:${real.port}`, tokenFile: tokenPath(rig.layout.run) };
    const mcp = await connect({ versionNegotiation: { mode: "auto" } }, target);
    const { id: vm_id } = await mcp.value<VmInfo>("capsem_create");
    writeFileSync(target.tokenFile, "b".repeat(64));
    const args = { vm_id, command: "echo hi", timeout_secs: 30 };
    expect(await mcp.value<ExecResult>("capsem_exec", args)).toMatchObject({ stdout: { data: "hi\n" } });
    expect(await mcp.failure("capsem_exec", { ...args, vm_id: "vm_aaaaaaaaaaaaaaaa" })).toMatchObject({
      code: "vm_not_found",
    });
    expect(await mcp.value("capsem_delete", { vm_id })).toEqual({ ok: true });
  });

  it("goes on after the gateway's token was replaced in its file", async () => {
    const mcp = await connect();
    expect(await mcp.value("capsem_list")).toEqual({ vms: [] });
    gateway.token = "Replaced0Token";
    expect(await mcp.failure("capsem_list")).toMatchObject({ status: 401 });
    writeFileSync(tokenFile, gateway.token);
    expect(await mcp.value("capsem_list")).toEqual({ vms: [] });
  });

  it.each(ERAS)("asks its user in the midst of a call (%s)", async (era) => {
    const asking = await startAskingGateway();
    const pin = era === "2026-07-28" ? { versionNegotiation: { mode: { pin: era } } } : {};
    const mcp = await connect(
      { capabilities: { elicitation: { form: {} } }, ...pin },
      { url: asking.url, tokenFile },
    );
    const forms: string[] = [];
    mcp.client.setRequestHandler("elicitation/create", ({ params }) => {
      forms.push(params.message);
      return { action: "accept", content: { decision: "once" } };
    });
    const args = { vm_id: "vm_aaaaaaaaaaaaaaaa", command: "make deploy", timeout_secs: 20 };
    expect(await mcp.value<ExecResult>("capsem_exec", args)).toMatchObject({ exit_code: 0 });
    expect(forms).toHaveLength(1);
    expect(asking.done).toEqual(["make deploy"]);
    expect(new Set(asking.seen.map(({ client }) => client))).toEqual(new Set(["capsem-mcp/0.1.0 (test 1)"]));
    await asking.close();
  });

  it("writes a file of several megabytes through one line", async () => {
    const mcp = await connect();
    const { id: vm_id } = await mcp.value<VmInfo>("capsem_create");
    const content = "0123456789abcde\n".repeat(750_000);
    expect(await mcp.value("capsem_write_file", { vm_id, path: "large", content })).toEqual({
      bytes: content.length,
    });
    const args = { vm_id, path: "large", offset: content.length - 6 };
    expect(await mcp.value("capsem_read_file", args)).toMatchObject({
      data: "abcde\n",
      size: content.length,
    });
    await mcp.value("capsem_delete", { vm_id });
  });
});
