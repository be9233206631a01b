import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Vm } from "@capsem/sdk";
import { buildSync } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { type Rig, startRig } from "../support/rig.ts";
import { type ClientHome, openClientHome, PROGRAMS } from "./clients.ts";
import { skipUnless } from "./skip.ts";
import { LAST_WORDS } from "./stub-plan.ts";
import { startToolServer, type ToolServer } from "./tool-servers.ts";

const MESSAGE = "from inside the VM";
const turn = z.object({
  offered: z.array(z.string()),
  asked: z.string().nullable(),
  result: z.string().nullable(),
});

/** What the agent needs in the VM: its program but for what it never loads there, and the model's stub in one file. */
function pack(folder: string): void {
  const bundle = dirname(PROGRAMS.gemini[1]);
  const isUsed = (path: string) => !/\/bundle\/(docs|bundled)(\/|$)/.test(path);
  cpSync(bundle, join(folder, "gemini"), { recursive: true, filter: isUsed });
  writeFileSync(join(folder, "gemini", "package.json"), '{ "type": "module" }');
  buildSync({
    entryPoints: [join(import.meta.dirname, "stub-program.ts")],
    outfile: join(folder, "stub.cjs"),
    ...{ bundle: true, platform: "node", format: "cjs", target: "node20", logLevel: "error" },
  });
  mkdirSync(join(folder, "stub"));
  const plan = { tool: "everything__echo$", args: { message: MESSAGE } };
  writeFileSync(join(folder, "stub", "plan.json"), JSON.stringify(plan));
  mkdirSync(join(folder, "home", ".gemini"), { recursive: true });
  const settings = {
    security: { auth: { selectedType: "gemini-api-key" } },
    mcpServers: { capsem: { httpUrl: "http://mcp.capsem.internal/mcp", trust: true, timeout: 60_000 } },
  };
  writeFileSync(join(folder, "home", ".gemini", "settings.json"), JSON.stringify(settings));
}

const RUN = [
  "cd /workspace/agent",
  "node stub.cjs stub & stub=$!",
  "until [ -s stub/url ]; do sleep 0.2; done",
  "export HOME=$PWD/home GEMINI_API_KEY=no-account GEMINI_CLI_TRUST_WORKSPACE=true CI=1 TERM=dumb",
  "export GOOGLE_GEMINI_BASE_URL=$(cat stub/url)",
  "node gemini/gemini.js -p 'Say it' --approval-mode yolo -m gemini-2.5-flash --output-format json",
  "code=$?",
  "kill $stub",
  "exit $code",
].join("\n");

describe("Gemini CLI inside a VM", skipUnless("gemini", "servers"), () => {
  let rig: Rig;
  let home: ClientHome;
  let server: ToolServer;
  let vm: Vm;
  let folder: string;
  beforeAll(async () => {
    home = openClientHome();
    folder = mkdtempSync(join(tmpdir(), "capsem-guest-agent-"));
    pack(folder);
    server = await startToolServer("everything", home);
    rig = await startRig();
    const cli = async (...words: readonly string[]) => {
      const { code, stderr } = await rig.cli(words, { timeoutMs: 200_000 });
      expect(code, stderr).toBe(0);
    };
    await cli("mcp", "add", "everything", server.fields.url, "--grant", `localhost:${server.port}`);
    await cli("mcp", "refresh", "everything");
    vm = await rig.create({ name: "agent", memory_gib: 2, cpus: 2 });
    await cli("cp", folder, "agent:/workspace/agent");
  }, 400_000);
  afterAll(async () => {
    await rig?.stop();
    await server?.stop();
    await home?.remove();
    rmSync(folder, { recursive: true, force: true });
  });

  test("finds its tools by HTTP without a token, calls one of somebody else's server, and that is recorded", async () => {
    const end = await vm.exec({ command: RUN, timeout_secs: 300 });
    expect(end.exit_code, `${end.stdout.data}\n${end.stderr.data}`).toBe(0);
    expect(end.stdout.data).toContain(LAST_WORDS);
    expect(end.stdout.data).toContain(MESSAGE);
    const turns = (await rig.sh(vm, "cat /workspace/agent/stub/turns.jsonl"))
      .trim()
      .split("\n")
      .map((line) => turn.parse(JSON.parse(line)));
    const asking = turns.find(({ asked }) => asked !== null);
    expect(asking?.asked).toBe("mcp_capsem_everything__echo");
    expect(asking?.offered).toContain("mcp_capsem_local__fetch_http");
    expect(turns.find(({ result }) => result !== null)?.result).toContain(MESSAGE);
    const { entries } = await vm.timeline({ layers: "tool" }).page();
    const details = {
      client: "gemini-cli-mcp-client 0.61.0",
      transport: "http",
      process: "node",
      is_pinned: true,
    };
    expect(entries).toEqual([
      expect.objectContaining({
        ...{ title: "everything__echo", requester: "guest", decision: "allow", outcome: "done" },
        details: expect.objectContaining({ ...details, arguments: JSON.stringify({ message: MESSAGE }) }),
      }),
    ]);
  }, 330_000);
});
