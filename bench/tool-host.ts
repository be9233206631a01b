/**
 * The service for the bench of tool calls, with its real ledger and its real workers. Its one VM is a stand-in, whose
 * guest is whoever started this: the end of its traffic lane goes out on descriptor 3, and what the guest would be told
 * comes as lines on stdout. Ends with its stdin.
 */
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { assert } from "@capsem/base";
import { native } from "@capsem/native";
import { emptyLayer, renderLayer } from "@capsem/policy";
import { SecretRedactor } from "../apps/service/src/credential/redactor.ts";
import { createHome, homeLayout } from "../apps/service/src/home/layout.ts";
import { openKeys } from "../apps/service/src/ledger/key-files.ts";
import { openPolicy } from "../apps/service/src/policy/open-policy.ts";
import type { Powers } from "../apps/service/src/powers.ts";
import { nodePowers, startOwner } from "../apps/service/src/powers-node.ts";
import { startService } from "../apps/service/src/service.ts";
import { createClient } from "../apps/service/src/testing/client.ts";
import { fakeMachinery, storeFakeGolden } from "../apps/service/src/testing/fake-machinery.ts";

const GUEST_FD = 3;
const [, , fakeOwner = "", serverUrl = ""] = process.argv;

const say = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);

/** Both ends of a lane: the guest's goes to whoever started this. */
function lane(): [number, number] {
  const pair = native().socketPair("stream");
  native().sendDescriptors(GUEST_FD, Buffer.from("lane"), [pair[1]]);
  return pair;
}

/** What an owner is told of its lane stands in its log. */
function ownersOf(script: string): Powers["startOwner"] {
  return (_, descriptors) => {
    const words = { file: process.execPath, args: [fakeOwner] };
    const owner = startOwner(words, descriptors, { FAKE_OWNER_SCRIPT: script });
    let text = "";
    owner.stderr.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      for (const [whole, json] of text.matchAll(/traffic (\{.*?\})"/g)) {
        text = text.replace(whole, "");
        say({ traffic: JSON.parse((json ?? "").replaceAll('\\"', '"')) });
      }
    });
    return owner;
  };
}

async function main(): Promise<void> {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-bench-home-")));
  const layout = homeLayout(home);
  const uid = process.getuid?.() ?? -1;
  await createHome(layout, uid);
  const script = join(home, "owner.json");
  writeFileSync(script, JSON.stringify({ opensTraffic: true }));
  storeFakeGolden(layout.goldens, "1-512");
  const settings = new Map([["limits.pool_size", 0]] as const);
  writeFileSync(layout.settings, renderLayer({ ...emptyLayer("user"), settings }));
  const log = (level: string, message: string, fields: object = {}) => {
    if (level !== "info") process.stderr.write(`${JSON.stringify({ level, message, ...fields })}\n`);
  };
  const policy = await openPolicy({ layout, uid, log, machineCorp: join(home, "corp.toml") });
  const powers = nodePowers(join(__dirname, "owner.cjs"));
  const service = await startService({
    ...{ layout, policy, log, redactor: new SecretRedactor(), keys: openKeys(layout.keys, uid) },
    machinery: fakeMachinery(layout.cache, { lane }),
    // Plans of an owner are those of an unprivileged service: it has no user to give away.
    powers: { ...powers, uid: 1_000, startOwner: ownersOf(script) },
  });
  const client = createClient(layout.socket);
  const { host } = new URL(serverUrl);
  const put = await client.put("/mcp/servers/bench", { url: serverUrl, grants: [host] });
  assert(put.status === 200, `the server must be declared: ${put.bytes}`);
  const rule = { action: "allow", match: 'mcp.server.name == "bench" || mcp.server.name == "local"' };
  const allowed = await client.put("/rules/bench", rule);
  assert(allowed.status === 200, `the rule must be taken: ${allowed.bytes}`);
  const created = await client.post("/vms/create", {});
  assert(created.status < 300, `the VM must be made: ${created.bytes}`);
  say({ ready: { socket: layout.socket, vm_id: created.json<{ id: string }>().id, pid: process.pid } });
  await new Promise((done) => process.stdin.resume().once("end", done));
  await service.close();
  rmSync(home, { recursive: true, force: true });
  process.exit(0);
}

main().catch((cause: unknown) => {
  process.stderr.write(`${cause instanceof Error ? cause.stack : cause}\n`);
  process.exit(1);
});
