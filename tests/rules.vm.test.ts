import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CapsemError, type Vm } from "@capsem/sdk";
import { createNodeClient } from "@capsem/sdk/node";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connectedOf } from "../apps/mcp/src/testing/connected.ts";
import { packProgram } from "../apps/mcp/src/testing/program.ts";
import { type Rig, startRig, until } from "./support/rig.ts";

let rig: Rig;
let build: Vm;
let other: Vm;
beforeAll(async () => {
  rig = await startRig({ pool: 1 });
  [build, other] = await Promise.all([rig.create({ name: "build" }), rig.create({ name: "other" })]);
});
afterAll(() => rig.stop());

const RULE = "profiles.rules.no-touch";
const REASON = "builds leave no marks";

async function put(name: string, match: string, reason: string): Promise<void> {
  const words = ["rules", "put", name, "--action", "block", "--match", match, "--reason", reason];
  expect(await rig.cli(words)).toMatchObject({ code: 0 });
}

/** Whether a file is in a VM, which the rules of these tests do not forbid to ask. */
const has = async (vm: Vm, path: string) => (await vm.exec({ command: `test -e ${path}` })).exit_code === 0;

const policy = (rule: string, reason: string) => ({
  kind: "policy",
  ruleId: rule,
  message: expect.stringContaining(reason),
});

test("a rule typed by a user blocks one command in one VM, and says so to CLI, SDK and an agent", async () => {
  // Without the rule it is done.
  expect(await rig.cli(["exec", "build", "touch before"])).toMatchObject({ code: 0 });
  await put("no-touch", 'vm.name == "build" && process.command.matches("\\\\btouch\\\\b")', REASON);

  const refused = await rig.cli(["exec", "build", "touch cli"]);
  expect(refused).toMatchObject({ code: 125, stderr: expect.stringContaining(RULE) });
  expect(refused.stderr).toContain(REASON);
  const json = await rig.cli(["exec", "--json", "build", "touch cli"]);
  expect(JSON.parse(json.stdout.toString() || json.stderr)).toMatchObject({
    error: { kind: "policy", rule_id: RULE, status: 403, retryable: false },
  });
  await expect(build.exec("touch sdk")).rejects.toThrow(CapsemError);
  await expect(build.exec("touch sdk")).rejects.toMatchObject(policy(RULE, REASON));
  await expect(build.stream("touch stream").then()).rejects.toMatchObject(policy(RULE, REASON));
  await expectBlockedThroughGateway();
  for (const path of ["cli", "sdk", "stream", "gateway", "mcp"])
    expect([path, await has(build, path)]).toEqual([path, false]);

  // Another command, and another VM.
  expect(await rig.cli(["exec", "build", "test -e before"])).toMatchObject({ code: 0 });
  expect(await rig.cli(["exec", "other", "touch free"])).toMatchObject({ code: 0 });
  expect(await has(other, "free")).toBe(true);
  expect(await rig.cli(["rules", "delete", "no-touch"])).toMatchObject({ code: 0 });
  expect(await rig.cli(["exec", "build", "touch after"])).toMatchObject({ code: 0 });
});

/** The same rule over HTTP with the token, and as an agent has it. */
async function expectBlockedThroughGateway(): Promise<void> {
  const gateway = await rig.startGateway();
  const client = createNodeClient({ url: gateway.url, tokenFile: gateway.tokenFile });
  await expect(client.vm(build.id).exec("touch gateway")).rejects.toMatchObject(policy(RULE, REASON));
  client.close();
  const program = packProgram();
  const agent = new Client({ name: "test", version: "1" });
  try {
    const args = [program.path, "--gateway-url", gateway.url, "--token-file", gateway.tokenFile];
    await agent.connect(new StdioClientTransport({ command: process.execPath, args }));
    await agent.listTools();
    const call = { vm_id: build.id, command: "touch mcp" };
    const failure = await connectedOf(agent).failure("capsem_exec", call);
    expect(failure).toMatchObject({ kind: "policy", rule_id: RULE });
    expect(JSON.stringify(failure)).toContain(REASON);
  } finally {
    await agent.close();
    program.close();
  }
}

test("files that a rule blocks by path or content do not move, in or out", async () => {
  const key = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n";
  await other.files.write("out.key", Buffer.from(key));
  await other.files.write("plain", Buffer.from("plain\n"));
  await put("deploy", 'file.import.path.startsWith("/workspace/deploy/")', "by review alone");
  await put("vault", 'file.export.name == "plain" && vm.name == "other"', "it stays");
  await put("keys-in", 'file.import.content.contains("PRIVATE KEY-----")', "no keys in");
  await put("keys-out", 'file.export.content.contains("PRIVATE KEY-----")', "no keys out");

  await rig.sh(other, "mkdir deploy");
  const id = (name: string) => `profiles.rules.${name}`;
  const by = (name: string, reason: string) => policy(id(name), reason);
  await expect(other.files.write("deploy/a", Buffer.from("x"))).rejects.toMatchObject(by("deploy", "review"));
  await expect(other.files.write("src/../deploy/a", Buffer.from("x"))).rejects.toMatchObject(
    by("deploy", "review"),
  );
  await expect(other.files.write("in.key", Buffer.from(key))).rejects.toMatchObject(
    by("keys-in", "no keys in"),
  );
  await expect(other.files.read("plain")).rejects.toMatchObject(by("vault", "it stays"));
  await expect(other.files.read("out.key")).rejects.toMatchObject(by("keys-out", "no keys out"));
  expect(await rig.sh(other, "ls -A deploy; test ! -e in.key")).toBe("");

  const local = join(rig.home, "local");
  mkdirSync(local);
  writeFileSync(join(local, "key"), key);
  const copied = await rig.cli(["cp", join(local, "key"), "other:copied.key"]);
  expect(copied).toMatchObject({ code: 1, stderr: expect.stringContaining(id("keys-in")) });
  const fetched = await rig.cli(["cp", "other:plain", join(local, "fetched")]);
  expect(fetched).toMatchObject({ code: 1, stderr: expect.stringContaining(id("vault")) });
  expect([existsSync(join(local, "fetched")), await has(other, "copied.key")]).toEqual([false, false]);

  // What no rule is about moves as before.
  await other.files.write("in.txt", Buffer.from("no key\n"));
  expect(Buffer.from((await other.files.read("in.txt")).bytes).toString()).toBe("no key\n");
  for (const name of ["deploy", "vault", "keys-in", "keys-out"]) await rig.client.rules.delete(name);
});

test("settings edited by hand hold in a running VM, and its active_policy.toml follows", async () => {
  const active = join(rig.home, "vms", other.id, "vm", "active_policy.toml");
  expect(readFileSync(active, "utf8")).not.toContain("by-hand");
  expect(await rig.sh(other, "echo free")).toBe("free\n");
  const file = join(rig.home, "settings.toml");
  const before = readFileSync(file, "utf8");
  appendFileSync(
    file,
    '\n[profiles.rules.by-hand]\naction = "block"\nmatch = \'process.command == "echo free"\'\nreason = "typed"\n',
  );
  await until("the file of the VM follows", 5_000, () => readFileSync(active, "utf8").includes("by-hand"));
  await expect(other.exec("echo free")).rejects.toMatchObject(policy("profiles.rules.by-hand", "typed"));
  expect(await rig.sh(other, "echo other")).toBe("other\n");

  // A fault changes nothing: what was in force stays in force, and the fault has a place.
  appendFileSync(file, "\nnonsense = \n");
  const faults = async () => (await rig.client.settings.info()).faults;
  await until("the fault is seen", 5_000, async () => (await faults()).length > 0);
  expect(await faults()).toMatchObject([{ file: "settings.toml", line: expect.any(Number) }]);
  await expect(other.exec("echo free")).rejects.toMatchObject({ kind: "policy" });

  writeFileSync(file, before);
  await until("the rule is gone", 5_000, () => !readFileSync(active, "utf8").includes("by-hand"));
  expect(await rig.sh(other, "echo free")).toBe("free\n");
});

test("output with a private key is withheld whole, and the job has run", async () => {
  const key = "-----BEGIN RSA PRIVATE KEY-----\nMIIsecretpart\n";
  const command = `printf '%s' ${Buffer.from(key).toString("base64")} | base64 -d; touch ran`;
  expect(await rig.sh(build, command)).toContain("MIIsecretpart");
  await rig.sh(build, "rm ran");
  const match = 'event.type == "process.exec_complete" && process.exec.stdout.contains("PRIVATE KEY-----")';
  await put("no-keys", match, "a key would reach the model");
  const rule = policy("profiles.rules.no-keys", "a key would reach the model");
  const refused: unknown = await build.exec(command).catch((error: unknown) => error);
  expect(refused).toMatchObject(rule);
  expect(refused).toMatchObject({ message: expect.stringContaining("which has run") });
  expect(await has(build, "ran")).toBe(true);
  const ran = await rig.client.run(command).catch((error: unknown) => error);
  expect(ran).toMatchObject(rule);
  expect(JSON.stringify([refused, ran])).not.toContain("MIIsecretpart");
  // It cannot be fetched by its job either.
  const [withheld] = (await build.jobs())
    .filter((job) => job.command.join(" ").includes("base64 -d"))
    .slice(-1);
  const fetch = async () => {
    for await (const _ of build.jobOutput(withheld?.id ?? "")) throw new Error("it was given");
  };
  await expect(fetch()).rejects.toMatchObject({ kind: "policy" });
  await rig.client.rules.delete("no-keys");
});
